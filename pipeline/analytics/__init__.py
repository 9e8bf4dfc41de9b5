"""Functions of Arrow tables, for few rows and many: they read and write no tables, and ask no clock."""


// How old the page is, by the reader's clock; and everything that can be opened is printed.
{
  const made = document.getElementById("made");
  const age = document.getElementById("age");
  const inWords = (ms) => {
    if (ms < 0) return "; this page was made in the future, by the clock here";
    const [unit, of] = [["d", 864e5], ["h", 36e5], ["min", 6e4]].find(([, of]) => ms >= 2 * of) ?? ["min", 6e4];
    return `; this page is ${Math.floor(ms / of)} ${unit} old`;
  };
  const show = () => {
    const ms = Date.now() - Date.parse(made.dateTime);
    age.textContent = inWords(ms);
    age.classList.toggle("old", ms >= 36e5);
  };
  if (age) { // a recorded report is always old
    show();
    setInterval(show, 6e4);
  }

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
    opened = [];
  });
}

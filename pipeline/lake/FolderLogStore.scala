package laglake

import java.io.{File, FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{FileAlreadyExistsException, Files, Path => NioPath, StandardCopyOption}
import java.util.{Iterator => JavaIterator, UUID}

import scala.jdk.CollectionConverters._
import scala.util.Try

import io.delta.storage.LocalLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

/** Delta's log in a local folder, safe for any number of writers in any number of processes.
  *
  * A commit is written to a file of its own, which is then linked to the name of the version: of all who try to create
  * a version, one succeeds, and nobody sees a part of it. delta-rs does the same, so it may write to the same tables.
  * Delta's own log store looks whether the file is there and then renames another to it, which loses commits if another
  * process does so at the same time.
  */
class FolderLogStore(hadoopConf: Configuration) extends LocalLogStore(hadoopConf) {
  import FolderLogStore._

  override def write(
      path: Path,
      actions: JavaIterator[String],
      overwrite: java.lang.Boolean,
      hadoopConf: Configuration): Unit = {
    val file = new File(path.toUri.getPath).toPath
    if (!Files.isDirectory(file.getParent)) throw new FileNotFoundException(s"${file.getParent}: there is no such folder")
    val unfinished = file.resolveSibling(s".${file.getFileName}.${UUID.randomUUID()}.tmp")
    try {
      Files.write(unfinished, actions.asScala.map(_ + "\n").mkString.getBytes(UTF_8))
      if (overwrite) replace(unfinished, file) // not a commit: `_last_checkpoint`
      else link(unfinished, file)
    } finally Files.deleteIfExists(unfinished)
  }
}

object FolderLogStore {
  /** Give the file its second name, or throw FileAlreadyExistsException if another file has it. */
  private def link(unfinished: NioPath, file: NioPath): Unit =
    try Files.createLink(file, unfinished)
    catch {
      // A network file system may have lost the answer to the first try, and so refuse the second.
      case _: IOException if Try(Files.isSameFile(file, unfinished)).getOrElse(false) =>
      case failure: FileAlreadyExistsException => throw failure
      case failure @ (_: IOException | _: UnsupportedOperationException) =>
        throw new UnsupportedOperationException(
          s"$file cannot be linked, so no lake is safe there: the file system needs hard links", failure)
    }

  /** The checksum that Hadoop may have written beside the former file would be wrong for this one. */
  private def replace(unfinished: NioPath, file: NioPath): Unit = {
    Files.deleteIfExists(file.resolveSibling(s".${file.getFileName}.crc"))
    Files.move(unfinished, file, StandardCopyOption.ATOMIC_MOVE)
  }
}

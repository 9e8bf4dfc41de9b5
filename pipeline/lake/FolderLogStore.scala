package laglake

import java.io.{File, FileNotFoundException, IOException}
import java.net.URI
import java.nio.ByteBuffer
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{FileAlreadyExistsException, Files, Path => NioPath, StandardCopyOption}
import java.nio.file.StandardOpenOption.{CREATE_NEW, READ, WRITE}
import java.util.{Iterator => JavaIterator, UUID}

import scala.jdk.CollectionConverters._
import scala.util.{Try, Using}

import io.delta.storage.LocalLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

/** Delta's log in a local folder, safe for any number of writers in any number of processes.
  *
  * A commit is written to a file of its own, which is then linked to the name of the version: of all who try to create
  * a version, one succeeds, and nobody sees a part of it. delta-rs does the same, so it may write to the same tables.
  * Delta's own log store looks whether the file is there and then renames another to it, which loses commits if another
  * process does so at the same time.
  *
  * When a commit returns, it is on the disk, and so are the files that it adds: they are synced before the version has
  * its name, and the folder of the log after that. Otherwise a version could be an empty file after a power failure, and
  * the table unreadable until somebody removes that file. The files of a checkpoint are synced before it is named as the
  * last one.
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
    val lines = actions.asScala.toSeq
    try {
      lines.flatMap(addedFile(file, _)).foreach(sync)
      if (overwrite) lines.flatMap(checkpointFiles(file, _)).foreach(part => Try(sync(part)))
      writeSynced(unfinished, lines.map(_ + "\n").mkString.getBytes(UTF_8))
      if (overwrite) replace(unfinished, file) // not a commit: `_last_checkpoint`
      else link(unfinished, file)
      // The commit is made: if a network file system cannot sync a folder, that must not look like a failed commit.
      Try(sync(file.getParent))
    } finally Files.deleteIfExists(unfinished)
  }
}

object FolderLogStore {
  private val Added = """(?s)\{"add":\{"path":"([^"\\]+)".*""".r
  private val Version = """"version":(\d{1,18})""".r

  /** The file that an action of a commit adds to the table. */
  private def addedFile(commit: NioPath, action: String): Option[NioPath] = action match {
    case Added(name) => Some(commit.getParent.resolveSibling(new URI(name).getPath)).filter(Files.exists(_))
    case _ => None
  }

  /** The files of the checkpoint that a `_last_checkpoint` names. Delta deletes the commits that they replace after that. */
  private def checkpointFiles(last: NioPath, line: String): Seq[NioPath] =
    Version.findFirstMatchIn(line).toSeq.flatMap { found =>
      val begin = f"${found.group(1).toLong}%020d.checkpoint."
      val files = Option(last.getParent.toFile.listFiles).toSeq.flatten
      files.filter(file => file.getName.startsWith(begin) && file.getName.endsWith(".parquet")).map(_.toPath)
    }

  private def writeSynced(file: NioPath, bytes: Array[Byte]): Unit =
    Using.resource(FileChannel.open(file, CREATE_NEW, WRITE)) { channel =>
      val left = ByteBuffer.wrap(bytes)
      while (left.hasRemaining) channel.write(left)
      channel.force(true)
    }

  /** Wait until a file, or the names in a folder, are on the disk. */
  private def sync(place: NioPath): Unit = Using.resource(FileChannel.open(place, READ))(_.force(true))

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

package laglake

import java.io.{FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.FileAlreadyExistsException
import java.util.{Arrays, Iterator => JavaIterator, UUID}
import java.util.concurrent.ConcurrentHashMap

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.{Failure, Success, Try}

import io.delta.storage.S3SingleDriverLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, FSDataOutputStream, Path}
import org.apache.hadoop.io.IOUtils

/** Delta's log on S3, safe for any number of writers in any number of processes.
  *
  * A commit is an object that is created with `If-None-Match: *`: of all who try to create a version, one succeeds.
  * delta-rs does the same, so it may write to the same tables. Delta's own `S3SingleDriverLogStore` looks whether the
  * object is there and then writes it, which loses commits if another process does so at the same time.
  *
  * Needs Hadoop's S3A connector of 3.4.2 or later (HADOOP-19256). A bucket whose store ignores the condition is refused.
  */
class S3LogStore(hadoopConf: Configuration) extends S3SingleDriverLogStore(hadoopConf) {
  import S3LogStore._

  override def write(
      path: Path,
      actions: JavaIterator[String],
      overwrite: java.lang.Boolean,
      hadoopConf: Configuration): Unit =
    if (overwrite) { // not a commit: `_last_checkpoint`
      super.write(path, actions, overwrite, hadoopConf)
    } else {
      val store = path.getFileSystem(hadoopConf)
      requireConditions(store, path.getParent)
      commit(store, path, actions.asScala.map(_ + "\n").mkString.getBytes(UTF_8), FirstPauseMs)
    }
}

object S3LogStore {
  private val FirstPauseMs = 200L
  private val LongestPauseMs = 3200L // so there are six tries in 6 s
  private val buckets = ConcurrentHashMap.newKeySet[String]() // those that are known to honour conditions

  /** Create the object, or throw FileAlreadyExistsException if another writer has.
    *
    * A failure says nothing about what the store did: the answer may be lost, and S3A then sends the object again, which
    * the store refuses. So the object is read: a commit has the id of its transaction in it, and equals no other. Where
    * there is none, it is created anew after a pause: S3 asks for that (409) while another request is under way.
    */
  @tailrec
  private def commit(store: FileSystem, path: Path, content: Array[Byte], pauseMs: Long): Unit =
    Try(write(open(store, path), content)) match {
      case Success(_) =>
      case Failure(failure: IOException) =>
        holds(store, path, content) match {
          case Some(true) =>
          case Some(false) => throw new FileAlreadyExistsException(path.toString)
          case None if pauseMs <= LongestPauseMs =>
            Thread.sleep(pauseMs)
            commit(store, path, content, 2 * pauseMs)
          case None => throw failure
        }
      case Failure(other) => throw other
    }

  private def open(store: FileSystem, path: Path): FSDataOutputStream =
    store.createFile(path).overwrite(false).recursive().must("fs.option.create.conditional.overwrite", true).build()

  /** Write and close, which is what creates the object; nothing is created if not all could be written. */
  private def write(stream: FSDataOutputStream, content: Array[Byte]): Unit = {
    try stream.write(content)
    catch { case failure: Throwable => stream.abort(); throw failure }
    stream.close()
  }

  /** Whether the object has this content; None if there is no object. */
  private def holds(store: FileSystem, path: Path, content: Array[Byte]): Option[Boolean] =
    try {
      if (store.getFileStatus(path).getLen != content.length) Some(false)
      else {
        val stream = store.open(path)
        try Some(Arrays.equals(IOUtils.readFullyToByteArray(stream), content))
        finally stream.close()
      }
    } catch { case _: FileNotFoundException => None }

  /** Once per bucket: of two streams to one object, both opened while it is absent, the second must fail. */
  private def requireConditions(store: FileSystem, folder: Path): Unit = {
    val bucket = store.getUri.toString
    if (!buckets.contains(bucket)) {
      val path = new Path(folder, s"_laglake_${UUID.randomUUID()}")
      try {
        val streams = Seq(open(store, path), open(store, path))
        val first = Try(write(streams.head, "first".getBytes(UTF_8)))
        Try(write(streams.last, "second".getBytes(UTF_8)))
        // The answer to either may be lost, so what counts is what the object holds.
        if (!holds(store, path, "first".getBytes(UTF_8)).contains(true)) {
          first.get
          throw new UnsupportedOperationException(
            s"$bucket ignores If-None-Match, so no lake is safe there: writers would replace each other's commits")
        }
      } finally store.delete(path, false)
      buckets.add(bucket)
    }
  }
}

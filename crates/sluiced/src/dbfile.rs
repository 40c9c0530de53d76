//! The embedded database's file: opened under its lock, repaired, and appended to by a separate thread.
//!
//! The writer thread appends and syncs in parallel to the main loop; commits are acknowledged when it reports
//! progress. A failed write truncates the file to the last synced record, so file and database stay equal.

use anyhow::{Context, Result, bail};
use ovsdb::db::Database;
use ovsdb::log::{self as dblog, LogError};
use ovsdb::schema::DatabaseSchema;
use ovsdb::server::LogRecord;
use ovsdb::value::UuidSource;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use sys::confine::Kind;
use sys::local;
use sys::lock::FileLock;
use sys::os_text;

/// Growth factor that triggers compaction, above [`COMPACT_MIN_BYTES`].
const COMPACT_GROWTH: u64 = 4;
const COMPACT_MIN_BYTES: u64 = 10 << 20;

/// Report of the writer thread.
pub enum Written {
    /// All records up to this one are on disk.
    Synced(u64),
    /// A record could not be written; the file ends with the last synced one.
    Failed(String),
}

/// Takes the outcome of a compaction.
type Compacted = Sender<Result<(), String>>;

enum Job {
    Append(Vec<LogRecord>),
    Replace(Vec<u8>, Compacted),
    GoOn,
}

/// An open database file.
pub struct DbFile {
    _lock: FileLock,
    jobs: Option<Sender<Job>>,
    written: Receiver<Written>,
    writer: Option<JoinHandle<()>>,
    bytes: u64,
    base_bytes: u64,
    path: PathBuf,
}

/// Opens (or creates) the file at `path`, protected by `lock`, and reads it. The writer thread calls `wake` after
/// each report.
pub fn open(
    path: &Path,
    lock: FileLock,
    schema: Arc<DatabaseSchema>,
    uuids: &mut dyn UuidSource,
    wake: impl Fn() + Send + 'static,
) -> Result<(DbFile, Database)> {
    // A symbolic link stays; its target is replaced.
    let path = &sys::lock::follow_links(path);
    let mut contents = Vec::new();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(local::FILE_MODE);
    let mut file =
        options.open(path).with_context(|| format!("{}: cannot open the database", path.display()))?;
    file.read_to_end(&mut contents)
        .with_context(|| format!("{}: cannot read the database", path.display()))?;
    let mut fresh = false;
    let (db, good_bytes) = match dblog::load(&contents, uuids) {
        Ok(loaded) => {
            if let Some(damage) = &loaded.damage {
                if damage.more_follows {
                    bail!(
                        "{}: {damage}; whole records follow, so this is not the end of an interrupted write: restore a \
                        copy, or cut the file at offset {} to give up what follows; the file was left as it is",
                        path.display(),
                        loaded.good_len
                    );
                }
                log::warn!(target: "ovsdb_file", "{}: {damage}; what was written after offset {} is cut off, all \
                    acknowledged transactions are there", path.display(), loaded.good_len);
                file.set_len(loaded.good_len as u64)?;
                file.sync_all()?;
            }
            (loaded.db, loaded.good_len as u64)
        }
        Err(LogError::Empty) => {
            fresh = true;
            (Database::new(schema.clone()), 0)
        }
        Err(e) => bail!("{}: {e}; the file was left as it is", path.display()),
    };
    if db.schema().name != schema.name {
        bail!(
            "{}: holds database {}, not {}; the file was left as it is",
            path.display(),
            db.schema().name,
            schema.name
        );
    }
    let differs = *db.schema() != schema;
    let db = if differs { convert(path, &contents[..good_bytes as usize], &db, schema)? } else { db };
    let mut bytes = good_bytes;
    if fresh || differs {
        bytes = replace(path, &dblog::snapshot(&db, "", sys::clock::wall_ms() as i64))
            .with_context(|| format!("{}: cannot write the database", path.display()))?;
    }
    let (jobs, todo) = channel();
    let (results, written) = channel();
    let writer = Writer { path: path.to_path_buf(), synced_bytes: bytes, file: None, failed: false };
    let writer = std::thread::Builder::new().name("ovsdb-log".into()).spawn(move || {
        sys::confine::enter(Kind::Files, &[folder_of(&writer.path)]);
        writer.run(&todo, &results, &wake);
    })?;
    let file = DbFile {
        _lock: lock,
        jobs: Some(jobs),
        written,
        writer: Some(writer),
        bytes,
        base_bytes: bytes,
        path: path.clone(),
    };
    Ok((file, db))
}

impl DbFile {
    /// The file itself, behind all symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Queues records for writing.
    pub fn append(&mut self, records: Vec<LogRecord>) {
        if records.is_empty() {
            return;
        }
        self.bytes += records.iter().map(|r| r.bytes.len() as u64).sum::<u64>();
        self.job(Job::Append(records));
    }

    /// Compacts the file if it has grown enough. Call it when all commits are synced.
    pub fn compact_if_due(&mut self, db: &Database) {
        if self.bytes >= COMPACT_MIN_BYTES && self.bytes >= COMPACT_GROWTH * self.base_bytes {
            self.compact(db);
        }
    }

    /// Compacts the file into a snapshot. The receiver gets the outcome, or loses its sender if an earlier write
    /// failed; the writer thread calls `wake` then.
    pub fn compact(&mut self, db: &Database) -> Receiver<Result<(), String>> {
        let snapshot = dblog::snapshot(db, "compacting database online", sys::clock::wall_ms() as i64);
        self.bytes = snapshot.len() as u64;
        self.base_bytes = self.bytes;
        let (outcome, compacted) = channel();
        self.job(Job::Replace(snapshot, outcome));
        compacted
    }

    /// After a failure all queued records are rolled back: write records queued from now on.
    pub fn go_on(&self) {
        self.job(Job::GoOn);
    }

    fn job(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The writer ends only when this end is dropped.
            let _ = jobs.send(job);
        }
    }

    /// The writer's reports since the last call.
    pub fn written(&self) -> Vec<Written> {
        self.written.try_iter().collect()
    }
}

impl Drop for DbFile {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Converts the contents of the file to `schema`, after a copy of the file. Logs the tables and columns that go.
fn convert(path: &Path, contents: &[u8], db: &Database, schema: Arc<DatabaseSchema>) -> Result<Database> {
    let from = db.schema();
    let converted = db
        .convert(schema.clone())
        .with_context(|| format!("{}: cannot convert the database", path.display()))?;
    // Only files of earlier releases lack the checksum.
    if (&from.version, &from.tables) == (&schema.version, &schema.tables) {
        return Ok(converted);
    }
    let copy = backup_path(path, from);
    write_like(path, &copy, contents).with_context(|| {
        format!(
            "{}: cannot copy the database before its conversion; the file was left as it is",
            copy.display()
        )
    })?;
    log::info!(target: "ovsdb_file", "{}: converting from schema {} to {}, with a copy in {}", path.display(),
        from.version, schema.version, copy.display());
    let gone = from.absent_from(&schema);
    if !gone.is_empty() {
        log::warn!(target: "ovsdb_file", "{}: schema {} has no {}; their contents are only in {}", path.display(),
            schema.version, gone.join(", "), copy.display());
    }
    Ok(converted)
}

/// Path of the copy of a file with this schema, as named by the stock switch's start script.
fn backup_path(path: &Path, schema: &DatabaseSchema) -> PathBuf {
    let cksum = schema.cksum.as_deref().and_then(|sum| sum.split_whitespace().next()).unwrap_or_default();
    // The schema is input: its text must not lead to another directory.
    let cksum: String = cksum.chars().filter(char::is_ascii_alphanumeric).collect();
    with_suffix(path, &format!(".backup{}-{cksum}", schema.version))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_os_string();
    path.push(suffix);
    PathBuf::from(path)
}

/// Replaces the file by a new one, with the same mode and owner; returns its size.
fn replace(path: &Path, contents: &[u8]) -> io::Result<u64> {
    write_like(path, path, contents)?;
    Ok(contents.len() as u64)
}

/// Writes a file with mode and owner of the file `like`. It replaces `path` once it is on disk.
fn write_like(like: &Path, path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = with_suffix(path, ".tmp");
    let failed = |what: &str, e: io::Error| {
        io::Error::new(e.kind(), format!("{}: {what} failed ({})", temporary.display(), os_text(&e)))
    };
    match std::fs::remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed("unlink", e)),
        _ => {}
    }
    // A new file: `O_EXCL` prevents writing to another's file or a symbolic link.
    let options = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
    let mut file = options.map_err(|e| failed("create", e))?;
    let mut write = || -> io::Result<()> {
        let (old, made) = (std::fs::metadata(like)?, file.metadata()?);
        if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
            std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o7777))?;
        file.write_all(contents)?;
        file.sync_all()
    };
    let written = write().map_err(|e| failed("write", e));
    let renamed = written.and_then(|()| std::fs::rename(&temporary, path).map_err(|e| failed("rename", e)));
    if let Err(e) = renamed {
        // A full disk needs the room.
        let _ = std::fs::remove_file(&temporary);
        return Err(e);
    }
    File::open(folder_of(path))?.sync_all()
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

struct Writer {
    path: PathBuf,
    synced_bytes: u64,
    file: Option<File>,
    /// A write failed. Records queued meanwhile depend on the lost ones, and must not be written.
    failed: bool,
}

impl Writer {
    fn run(mut self, jobs: &Receiver<Job>, results: &Sender<Written>, wake: &dyn Fn()) {
        let mut next = None;
        while let Some(job) = next.take().or_else(|| jobs.recv().ok()) {
            match job {
                Job::GoOn => self.failed = false,
                Job::Append(_) | Job::Replace(..) if self.failed => wake(),
                Job::Replace(snapshot, outcome) => {
                    // Compaction on growth waits for no outcome.
                    let _ = outcome.send(self.replace(&snapshot));
                    wake();
                }
                Job::Append(mut records) => {
                    // Sync records queued meanwhile together.
                    while next.is_none() {
                        match jobs.try_recv() {
                            Ok(Job::Append(more)) => records.extend(more),
                            Ok(other) => next = Some(other),
                            Err(_) => break,
                        }
                    }
                    let outcome = match self.append(&records) {
                        Ok(()) => Written::Synced(records.last().map_or(0, |r| r.seq)),
                        Err(e) => {
                            self.failed = true;
                            Written::Failed(format!("{}: cannot write: {}", self.path.display(), os_text(&e)))
                        }
                    };
                    if results.send(outcome).is_err() {
                        return;
                    }
                    wake();
                }
            }
        }
    }

    fn append(&mut self, records: &[LogRecord]) -> io::Result<()> {
        let result = self.try_append(records);
        if result.is_err() {
            // Truncate to the acknowledged records; the next append reopens the file.
            if let Some(file) = self.file.take() {
                let _ = file.set_len(self.synced_bytes);
                let _ = file.sync_all();
            }
        }
        result
    }

    fn try_append(&mut self, records: &[LogRecord]) -> io::Result<()> {
        if self.file.is_none() {
            let mut file = OpenOptions::new().write(true).open(&self.path)?;
            file.seek(SeekFrom::Start(self.synced_bytes))?;
            self.file = Some(file);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut bytes = 0;
        for record in records {
            file.write_all(&record.bytes)?;
            bytes += record.bytes.len() as u64;
        }
        file.sync_data()?;
        self.synced_bytes += bytes;
        Ok(())
    }

    fn replace(&mut self, snapshot: &[u8]) -> Result<(), String> {
        let replaced = replace(&self.path, snapshot).map_err(|e| format!("I/O error: {e}"));
        match &replaced {
            Ok(bytes) => {
                self.file = None;
                self.synced_bytes = *bytes;
            }
            // The old file is still intact.
            Err(why) => log::warn!(target: "ovsdb_file", "{}: not compacted: {why}", self.path.display()),
        }
        replaced.map(|_| ())
    }
}

//! The embedded database's file: opened under its lock, repaired, and appended to by a separate thread.
//!
//! The writer thread appends and syncs in parallel to the main loop; commits are acknowledged when it reports
//! progress. A failed write truncates the file to the last synced record, so file and database stay equal.

use anyhow::{Context, Result, bail};
use ovsdb::db::Database;
use ovsdb::log::{self as dblog, LogError};
use ovsdb::server::LogRecord;
use ovsdb::value::UuidSource;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use sys::local;
use sys::lock::FileLock;

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

enum Job {
    Append(Vec<LogRecord>),
    Replace(Vec<u8>),
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
}

/// Opens (or creates) the file at `path`, protected by `lock`, and reads it. The writer thread calls `wake` after
/// each report.
pub fn open(
    path: &Path,
    lock: FileLock,
    schema: Arc<ovsdb::schema::DatabaseSchema>,
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
    let older = db.schema().version != schema.version;
    if db.schema().name != schema.name {
        bail!(
            "{}: holds database {}, not {}; the file was left as it is",
            path.display(),
            db.schema().name,
            schema.name
        );
    }
    let db = if older {
        log::info!(target: "ovsdb_file", "{}: converting from schema {} to {}", path.display(),
            db.schema().version, schema.version);
        db.convert(schema).with_context(|| format!("{}: cannot convert the database", path.display()))?
    } else {
        db
    };
    let mut bytes = good_bytes;
    if fresh || older {
        bytes = replace(path, &dblog::snapshot(&db, "", sys::clock::wall_ms() as i64))?;
    }
    let (jobs, todo) = channel();
    let (results, written) = channel();
    let writer = Writer { path: path.to_path_buf(), synced_bytes: bytes, file: None, failed: false };
    let writer = std::thread::Builder::new()
        .name("ovsdb-log".into())
        .spawn(move || writer.run(&todo, &results, &wake))?;
    let file =
        DbFile { _lock: lock, jobs: Some(jobs), written, writer: Some(writer), bytes, base_bytes: bytes };
    Ok((file, db))
}

impl DbFile {
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

    /// Compacts the file into a snapshot.
    pub fn compact(&mut self, db: &Database) {
        let snapshot = dblog::snapshot(db, "compacting database online", sys::clock::wall_ms() as i64);
        self.bytes = snapshot.len() as u64;
        self.base_bytes = self.bytes;
        self.job(Job::Replace(snapshot));
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

/// Replaces the file by a new one, with the same mode and owner; returns its size.
fn replace(path: &Path, contents: &[u8]) -> Result<u64> {
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let write = || -> io::Result<()> {
        let old = std::fs::metadata(path)?;
        match std::fs::remove_file(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        // A new file: `O_EXCL` prevents writing to another's file or a symbolic link.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
            std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o7777))?;
        file.write_all(contents)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    };
    write().with_context(|| format!("{}: cannot write the database", path.display()))?;
    Ok(contents.len() as u64)
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
                Job::Append(_) | Job::Replace(_) if self.failed => {}
                Job::Replace(snapshot) => self.replace(&snapshot),
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
                            Written::Failed(format!("{}: cannot write: {e}", self.path.display()))
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

    fn replace(&mut self, snapshot: &[u8]) {
        match replace(&self.path, snapshot) {
            Ok(bytes) => {
                self.file = None;
                self.synced_bytes = bytes;
            }
            // The old file is still intact.
            Err(e) => log::warn!(target: "ovsdb_file", "{e:#}: not compacted"),
        }
    }
}

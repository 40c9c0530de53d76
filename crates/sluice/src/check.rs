//! `sluice check`: settings of a database that Sluice refuses, that have no effect or another one, read from a server
//! or a file.
//!
//! `vswitch` parses the rows as in the daemon, so both give the same list, except for refusals by devices and datapaths:
//! only the daemon knows these (`sluice status`). Keys that no setting has follow; they may belong to another program.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use ovsdb::client::Replica;
use ovsdb::value::SeededUuids;
use vswitch::{Desired, Notice, SupportedTypes};

use crate::remote::{Deadline, EXIT_TIMED_OUT, TimedOut, complain, print, run_dir};
use crate::status_model::Setting;
use crate::unknown_keys::UnknownKey;
use crate::vsctl::Session;

const PROGRAM: &str = "sluice check";
/// Prefixes of addresses of servers; another text is a file.
const REMOTES: [&str; 3] = ["unix:", "tcp:", "ssl:"];
/// Present while the kernel has the datapath.
const KERNEL_MODULE: &str = "/sys/module/openvswitch";

/// Arguments of `sluice check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A server (unix:PATH, tcp:HOST:PORT) or a file, such as /etc/openvswitch/conf.db; the default is the server of
    /// the switch, unix:db.sock in the folder of its sockets
    database: Option<String>,
    /// Timeout of a server in seconds; 0 waits for ever
    #[arg(long, default_value_t = 10)]
    timeout: u32,
}

impl Options {
    /// For a server or a file.
    pub(crate) fn of(database: String) -> Options {
        Options { database: Some(database), timeout: 10 }
    }
}

/// Runs it; returns the exit code: 0 if all settings have their effect, also beside unknown keys, else 1.
pub(crate) fn main(options: &Options) -> u8 {
    match run(options) {
        Ok((settings, unknown)) => {
            print(
                &settings
                    .iter()
                    .map(Setting::line)
                    .chain(unknown.iter().map(UnknownKey::line))
                    .collect::<String>(),
            );
            u8::from(!settings.is_empty())
        }
        Err(error) => {
            complain(PROGRAM, &format!("{error:#}"));
            if error.chain().any(|cause| cause.is::<TimedOut>()) { EXIT_TIMED_OUT } else { 2 }
        }
    }
}

/// Settings without their effect, and unknown keys.
type Findings = (Vec<Setting>, Vec<UnknownKey>);

fn run(options: &Options) -> Result<Findings> {
    let database = match &options.database {
        Some(database) => database.clone(),
        None => format!("unix:{}", run_dir().join("db.sock").display()),
    };
    if !REMOTES.iter().any(|prefix| database.starts_with(prefix)) {
        return Ok(findings(&read_file(Path::new(&database))?));
    }
    let deadline = Deadline::after_s(options.timeout);
    let session = Session::open(&database, &tls::Settings::default(), false, deadline)?;
    Ok(findings(session.replica()))
}

fn read_file(path: &Path) -> Result<Replica> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => bail!("{}: {}", path.display(), sys::os_text(&error)),
    };
    // Versions of rows, which are not read.
    let mut uuids = SeededUuids::new(0);
    let loaded = ovsdb::log::load(&bytes, &mut uuids).with_context(|| path.display().to_string())?;
    if let Some(damage) = loaded.damage {
        complain(PROGRAM, &format!("{}: {damage}; the part before is checked", path.display()));
    }
    Ok(Replica::of_database(&loaded.db))
}

/// In the order of tables and rows.
fn findings(replica: &Replica) -> Findings {
    let supported = SupportedTypes::of_database(replica, Path::new(KERNEL_MODULE).exists());
    let Desired { notices, unknown_keys, .. } = Desired::from_replica(replica, &supported);
    let of_notice = |notice: Notice| Setting {
        table: notice.table.to_string(),
        row: notice.name,
        setting: notice.setting,
        message: notice.message,
    };
    (notices.into_iter().map(of_notice).collect(), unknown_keys.iter().map(UnknownKey::from).collect())
}

//! `sluice check`: settings of a database that Sluice refuses, that have no effect or another one, read from a server
//! or a file.
//!
//! `vswitch` parses the rows as in the daemon, so both give the same list, except for refusals by devices and datapaths:
//! only the daemon knows these (`sluice status`).

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use ovsdb::client::Replica;
use ovsdb::value::SeededUuids;
use vswitch::{Desired, Notice, SupportedTypes};

use crate::remote::{Deadline, EXIT_TIMED_OUT, TimedOut, complain, print, run_dir};
use crate::status_model::Setting;
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

/// Runs it; returns the exit code: 0 if all settings have their effect, else 1.
pub(crate) fn main(options: &Options) -> u8 {
    match run(options) {
        Ok(notices) => {
            print(&notices.iter().map(Setting::line).collect::<String>());
            u8::from(!notices.is_empty())
        }
        Err(error) => {
            complain(PROGRAM, &format!("{error:#}"));
            if error.chain().any(|cause| cause.is::<TimedOut>()) { EXIT_TIMED_OUT } else { 2 }
        }
    }
}

fn run(options: &Options) -> Result<Vec<Setting>> {
    let database = match &options.database {
        Some(database) => database.clone(),
        None => format!("unix:{}", run_dir().join("db.sock").display()),
    };
    if !REMOTES.iter().any(|prefix| database.starts_with(prefix)) {
        return Ok(settings(&read_file(Path::new(&database))?));
    }
    let deadline = Deadline::after_s(options.timeout);
    let session = Session::open(&database, &tls::Settings::default(), false, deadline)?;
    Ok(settings(session.replica()))
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
fn settings(replica: &Replica) -> Vec<Setting> {
    let supported = SupportedTypes::of_database(replica, Path::new(KERNEL_MODULE).exists());
    let notices = Desired::from_replica(replica, &supported).notices;
    let of_notice = |notice: Notice| Setting {
        table: notice.table.to_string(),
        row: notice.name,
        setting: notice.setting,
        message: notice.message,
    };
    notices.into_iter().map(of_notice).collect()
}

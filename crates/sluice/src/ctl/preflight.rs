//! `sluice ctl check`: the needs of a start, without one.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::options::Options;
use super::process::{self, Found};
use super::{DAEMON, Places, start};
use crate::check;
use crate::remote::print;

/// Whether files can be made in a folder, or in the nearest one above that exists.
fn is_writable(folder: &Path) -> bool {
    let exists = folder.ancestors().find(|path| path.exists());
    exists.is_some_and(|path| path.is_dir() && sys::is_writable(path))
}

/// Tests each need, and prints a line for each; whether a start would succeed and each setting has its effect.
pub(super) fn check(options: &Options, places: &Places) -> Result<bool> {
    let mut good = true;
    let mut line = |fine: bool, text: String| {
        print(&format!("{}  {text}\n", if fine { "ok     " } else { "PROBLEM" }));
        good &= fine;
    };
    let program = start::program();
    let runs = Command::new(&program).arg("--version").output().is_ok_and(|output| output.status.success());
    line(runs, format!("program {}", program.display()));
    for folder in [&places.run, &places.log, &places.database] {
        line(is_writable(folder), format!("folder {}", folder.display()));
    }
    let running = match process::find(places)? {
        Found::Running(daemon) => {
            line(daemon.is_ours(), daemon.to_string());
            daemon.is_ours()
        }
        Found::Stale(_) | Found::None => false,
    };
    let served = UnixStream::connect(places.socket()).is_ok();
    let file = places.database.join("conf.db");
    match (served, running, options.no_ovsdb_server) {
        (true, true, _) => {}
        (true, false, _) => line(
            true,
            format!("a database server listens at {}: {DAEMON} follows it", places.socket().display()),
        ),
        (false, _, true) => {
            line(false, format!("no database server listens at {}", places.socket().display()))
        }
        (false, _, false) if file.exists() => line(true, format!("database {}", file.display())),
        (false, _, false) => {
            line(true, format!("database {}: does not exist yet, a start creates it", file.display()))
        }
    }
    let source = match served {
        true => Some(format!("unix:{}", places.socket().display())),
        false => file.exists().then(|| file.display().to_string()),
    };
    let settings = source.is_none_or(|source| check::main(&check::Options::of(source)) == 0);
    Ok(good && settings)
}

//! The guard: a second process of this program that removes the bridge if the first one ends in any way
//! (`kill -9`). It waits on a pipe whose other end only the first one holds. The devices need no guard: they
//! vanish with the first one's namespace.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::control::{Switch, Tools, database, remove_bridge};
use crate::devices::{Devices, device_exists};
use crate::options::{Options, Target};

/// Written by the first process after removing the bridge itself.
const DONE: &str = "done\n";

/// The guard, seen from the process that it watches.
pub struct Guard(Child);

impl Guard {
    /// Starts it, in its own process group so that Ctrl-C does not reach it.
    ///
    /// # Errors
    /// If this program cannot be started again.
    pub fn start(options: &Options, bridge: &str) -> Result<Guard> {
        let mut command = Command::new(std::env::current_exe()?);
        let target = if options.target == Target::Bridge { "bridge" } else { "auto" };
        command.args(["upcall-bench", "--guard", "--target", target, "--bridge", bridge]);
        command.arg("--rundir").arg(options.run_directory());
        command.args(["--datapath-type", &options.datapath_type]);
        if let Some(db) = &options.db {
            command.args(["--db", db]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        Ok(Guard(command.spawn().context("cannot start the guard")?))
    }

    /// Makes it clean up now, and waits for that.
    pub fn act(mut self) {
        drop(self.0.stdin.take());
        let _gone_already = self.0.wait();
    }

    /// Ends it without clean-up.
    pub fn dismiss(mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            let _gone_already = pipe.write_all(DONE.as_bytes());
        }
        let _gone_already = self.0.wait();
    }
}

/// The guard's part.
///
/// # Errors
/// If the bridge cannot be removed.
pub fn keep(options: &Options, tools: &dyn Tools) -> Result<()> {
    let mut input = String::new();
    let _ended_either_way = std::io::stdin().read_to_string(&mut input);
    let Some(bridge) = options.bridge.as_deref().filter(|_| input != DONE) else { return Ok(()) };
    if options.target == Target::Bridge {
        return if device_exists(bridge)? { Devices::remove_linux_bridge(bridge) } else { Ok(()) };
    }
    let (rundir, db) = (options.run_directory(), options.db.as_deref());
    match Switch::find(tools, &rundir, db, &options.datapath_type) {
        Ok(switch) => switch.remove_bridge(bridge),
        // The daemon is gone. Its database may still be served.
        Err(_) => remove_bridge(tools, &database(&rundir, db), bridge, false),
    }
}

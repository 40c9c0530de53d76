//! The kernel module of the datapath.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::report;
use crate::remote::print;

const MODULE: &str = "openvswitch";

/// Inserts the module, if missing; whether it is there.
pub(super) fn load() -> Result<bool> {
    if Path::new("/sys/module").join(MODULE).exists() {
        return Ok(report(&format!("The kernel has the module {MODULE} already"), true));
    }
    let inserted = Command::new("modprobe").arg(MODULE).status().is_ok_and(|status| status.success());
    if !report(&format!("Inserting {MODULE} module"), inserted) {
        print("Without it all bridges use the userspace datapath.\n");
    }
    Ok(inserted)
}

/// The reason why the module is not exchanged.
pub(super) fn refuse_reload() -> Result<bool> {
    bail!(
        "force-reload-kmod: the module {MODULE} belongs to the kernel, and no version of Sluice needs another one; \
         to load it anew: stop, modprobe -r {MODULE}, load-kmod, start"
    )
}

//! The fuzz targets of all crates under libFuzzer, in one program: `SLUICE_FUZZ_TARGET` names the target, the arguments are
//! libFuzzer's. `cargo xtask fuzz` builds and runs it.
//!
//! With `SLUICE_FUZZ_LIST` set it only prints the names; with `SLUICE_FUZZ_SEEDS=folder` it only writes the
//! target's corpus there, one input per file. A target is a plain function of its crate's `fuzz` module,
//! independent of this program.
#![no_main]

mod seeds;
mod targets;

use std::path::Path;
use std::sync::OnceLock;

use targets::{TARGETS, Target};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

/// Handles the environment, before the first input.
fn begin() {
    if std::env::var_os("SLUICE_FUZZ_LIST").is_some() {
        for target in TARGETS {
            println!("{}", target.name);
        }
        std::process::exit(0);
    }
    let name = std::env::var("SLUICE_FUZZ_TARGET").unwrap_or_default();
    let Some(target) = TARGETS.iter().find(|t| t.name == name) else {
        eprintln!("SLUICE_FUZZ_TARGET: there is no target `{name}`; SLUICE_FUZZ_LIST=1 lists them");
        std::process::exit(2);
    };
    if let Some(folder) = std::env::var_os("SLUICE_FUZZ_SEEDS") {
        if let Err(why) = seeds::write(target, Path::new(&folder)) {
            eprintln!("seeds of {name}: {why}");
            std::process::exit(2);
        }
        std::process::exit(0);
    }
    TARGET.get_or_init(|| target);
}

libfuzzer_sys::fuzz_target!(
    init: begin(),
    |data: &[u8]| {
        if let Some(target) = TARGET.get() {
            (target.run)(data);
        }
    }
);

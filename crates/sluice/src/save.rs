//! `sluice save` and `sluice restore`: rules, groups, meters and mappings of tunnel metadata of bridges in a readable file.
//!
//! Both speak OpenFlow with the management sockets of the bridges, so they serve any Open vSwitch too.

use crate::ofctl::saved::{self, file};
use crate::remote::{EXIT_TIMED_OUT, TimedOut, complain, print};
use crate::vsctl;
use anyhow::{Context as _, Result, bail};
use std::io::{self, Read as _};

const SAVE: &str = "sluice save";
const RESTORE: &str = "sluice restore";
/// Maximum size of a file.
const FILE_MAX_BYTES: u64 = 1 << 30;

/// Arguments of `sluice save`.
#[derive(Debug, clap::Args)]
pub(crate) struct SaveOptions {
    /// The bridges; without names all of the database
    bridges: Vec<String>,
    /// File to write; without it, standard output
    #[arg(short, long)]
    output: Option<String>,
    /// Timeout of each bridge in seconds; 0 waits for ever
    #[arg(long, default_value_t = 60)]
    timeout: u32,
}

/// Arguments of `sluice restore`.
#[derive(Debug, clap::Args)]
pub(crate) struct RestoreOptions {
    /// A file of `sluice save`; `-` is standard input
    file: String,
    /// The bridges; without names all of the file
    bridges: Vec<String>,
    /// Timeout of each bridge in seconds; 0 waits for ever
    #[arg(long, default_value_t = 60)]
    timeout: u32,
}

/// Prints an error; returns the exit code.
fn failed(program: &str, error: &anyhow::Error) -> u8 {
    complain(program, &format!("{error:#}"));
    if error.chain().any(|cause| cause.is::<TimedOut>()) { EXIT_TIMED_OUT } else { 1 }
}

/// Runs `sluice save`; returns the exit code. An error of one bridge leaves no file.
pub(crate) fn save_main(options: &SaveOptions) -> u8 {
    match save(options) {
        Ok(()) => 0,
        Err(error) => failed(SAVE, &error),
    }
}

fn save(options: &SaveOptions) -> Result<()> {
    let all;
    let bridges = if options.bridges.is_empty() {
        all = bridges()?;
        &all
    } else {
        &options.bridges
    };
    let mut text = file::begin();
    for bridge in bridges {
        saved::save(bridge, options.timeout, &mut text).with_context(|| bridge.clone())?;
    }
    match &options.output {
        Some(path) => std::fs::write(path, text).map_err(|e| anyhow::anyhow!("{path}: {}", sys::os_text(&e))),
        None => {
            print(&text);
            Ok(())
        }
    }
}

/// The bridges of the database.
fn bridges() -> Result<Vec<String>> {
    let words = ["--bare", "--columns=name", "list", "Bridge"].map(String::from);
    let text = vsctl::answer(SAVE, &words)?;
    let mut names: Vec<String> = text.lines().filter(|name| !name.is_empty()).map(String::from).collect();
    names.sort();
    Ok(names)
}

/// Runs `sluice restore`; returns the exit code: 1 if a part was left out.
pub(crate) fn restore_main(options: &RestoreOptions) -> u8 {
    match restore(options) {
        Ok(code) => code,
        Err(error) => failed(RESTORE, &error),
    }
}

fn read(path: &str) -> io::Result<String> {
    let mut text = String::new();
    if path == "-" {
        io::stdin().lock().take(FILE_MAX_BYTES).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(path)?.take(FILE_MAX_BYTES).read_to_string(&mut text)?;
    }
    Ok(text)
}

fn restore(options: &RestoreOptions) -> Result<u8> {
    let path = &options.file;
    let text = match read(path) {
        Ok(text) => text,
        Err(error) => bail!("{path}: {}", sys::os_text(&error)),
    };
    let sections = file::read(&text).map_err(|error| anyhow::anyhow!("{path}:{error}"))?;
    let names: Vec<&str> = match &options.bridges[..] {
        [] => sections.iter().map(|section| section.bridge).collect(),
        names => names.iter().map(String::as_str).collect(),
    };
    let mut code = 0;
    for name in names {
        let Some(section) = sections.iter().find(|section| section.bridge == name) else {
            complain(RESTORE, &format!("{name}: the file has no such bridge"));
            code = 1;
            continue;
        };
        match saved::restore(section, options.timeout) {
            Ok(outcome) => {
                for part in &outcome.left_out {
                    let line = part.line.map_or(String::new(), |line| format!(":{line}"));
                    complain(RESTORE, &format!("{path}{line}: {name}: {}: {}", part.text, part.error));
                    code = 1;
                }
                print(&format!("{name}: {} changes, {} left out\n", outcome.changes, outcome.left_out.len()));
            }
            Err(error) => code = failed(RESTORE, &error.context(name.to_string())),
        }
    }
    Ok(code)
}

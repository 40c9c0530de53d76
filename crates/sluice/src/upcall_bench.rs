//! `sluice upcall-bench`: passes this program's command lines and the terminal's width to the measuring tool.

use std::io::IsTerminal as _;
use std::path::Path;

use ::upcall_bench::{Options, Tools};
use anyhow::{Result, bail};

use crate::appctl::{Answer, call};
use crate::remote::Deadline;
use crate::{ofctl, vsctl};

const PROGRAM: &str = "sluice upcall-bench";
/// Timeout of a daemon's reply.
const APPCTL_TIMEOUT_S: u32 = 60;
/// Width of a table without a terminal.
const PAGE_COLUMNS: usize = 160;

struct Own;

impl Tools for Own {
    fn vsctl(&self, words: &[String]) -> Result<String> {
        vsctl::answer(PROGRAM, words)
    }

    fn ofctl(&self, words: &[String]) -> Result<String> {
        ofctl::answer(words)
    }

    fn appctl(&self, socket: &Path, command: &str, args: &[String]) -> Result<String> {
        match call(&socket.to_string_lossy(), command, args, Deadline::after_s(APPCTL_TIMEOUT_S))? {
            Answer::Text(text) => Ok(text),
            Answer::Error(text) => bail!("{command}: {}", text.trim_end()),
        }
    }
}

/// Runs it; returns the exit code.
pub(crate) fn main(options: &Options) -> u8 {
    let terminal =
        std::io::stdout().is_terminal().then(ratatui::crossterm::terminal::size).and_then(Result::ok);
    let width = terminal.map_or(PAGE_COLUMNS, |(columns, _)| usize::from(columns));
    ::upcall_bench::main(options, &Own, width)
}

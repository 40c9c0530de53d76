//! The commands of link protocols: rows of [`l2proto`], executed by the thread of the sessions.

use super::{Command, Run};
use l2proto::Protocol;
use std::sync::LazyLock;

/// The commands of all link protocols.
pub(super) fn rows() -> &'static [Command] {
    static ROWS: LazyLock<Vec<Command>> = LazyLock::new(|| {
        let commands = Protocol::ALL.iter().flat_map(|p| p.commands().map(|(n, row)| (*p, n, row)));
        let row = |(protocol, n, row): (Protocol, usize, l2proto::registry::CommandRow)| Command {
            name: row.name,
            usage: row.arguments,
            bounds: row.min_args..=row.max_args,
            help: row.help,
            run: Run::Link(protocol, n),
        };
        commands.map(row).collect()
    });
    &ROWS
}

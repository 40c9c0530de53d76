//! The commands of link protocols: rows of [`l2proto`], executed by the thread of the sessions.

use super::{Command, Reply, Rows};
use crate::control_plane::ControlPlane;
use l2proto::Protocol;
use l2proto::registry::CommandRow;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// A command of a link protocol, which parses its words itself.
struct LinkCommand {
    protocol: Protocol,
    /// Its number among the commands of the protocol.
    number: usize,
    row: CommandRow,
}

impl Command for LinkCommand {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn usage(&self) -> String {
        self.row.arguments.to_string()
    }

    fn bounds(&self) -> RangeInclusive<usize> {
        self.row.min_args..=self.row.max_args
    }

    fn help(&self) -> &'static str {
        self.row.help
    }

    fn run(&self, plane: &mut ControlPlane, words: &[String]) -> Reply {
        plane.switch.link_protocols().command(self.protocol, self.number, words).into()
    }
}

/// The commands of all link protocols.
pub(super) fn rows() -> Rows {
    static COMMANDS: LazyLock<Vec<LinkCommand>> = LazyLock::new(|| {
        let of = |p: &Protocol| {
            let protocol = *p;
            protocol.commands().map(move |(number, row)| LinkCommand { protocol, number, row })
        };
        Protocol::ALL.iter().flat_map(of).collect()
    });
    static ROWS: LazyLock<Vec<&'static dyn Command>> =
        LazyLock::new(|| COMMANDS.iter().map(|command| command as &dyn Command).collect());
    &ROWS
}

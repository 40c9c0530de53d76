//! Settings of link protocols: each protocol of [`l2proto`] reads its columns itself.

use super::reader::Reader;
use l2proto::LinkSettings;
use l2proto::protocol::{Columns, LinkValue, Table};
use ovsdb::client::RowView;
use ovsdb::value::Atom;
use std::sync::Arc;

/// The rows of an interface, its port and its bridge.
#[derive(Clone, Copy)]
pub(super) struct LinkRows<'a> {
    pub(super) bridge: RowView<'a>,
    pub(super) port: RowView<'a>,
    pub(super) interface: RowView<'a>,
}

impl Columns for LinkRows<'_> {
    fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
        let row = match table {
            Table::Bridge => self.bridge,
            Table::Port => self.port,
            Table::Interface => self.interface,
        };
        let datum = row.datum(name)?;
        if datum.is_map() {
            let pairs = row.string_map(name).into_iter();
            return Some(LinkValue::Map(pairs.map(|(k, v)| (k.to_string(), v.to_string())).collect()));
        }
        match datum.atoms().first()? {
            Atom::Boolean(flag) => Some(LinkValue::Flag(*flag)),
            Atom::Integer(number) => Some(LinkValue::Integer(*number)),
            Atom::String(text) => Some(LinkValue::Text(text.to_string())),
            Atom::Real(_) | Atom::Uuid(_) => None,
        }
    }
}

impl<'a> Reader<'a> {
    /// The sessions of an interface. As in OVS a bad value counts as absent; the row names it.
    pub(super) fn links(&mut self, rows: LinkRows<'a>) -> Arc<[LinkSettings]> {
        let (sessions, ignored) = LinkSettings::parse(&rows);
        for setting in ignored {
            self.hint(rows.interface, setting.place, setting.message);
        }
        sessions.into()
    }
}

//! Settings of link protocols: each protocol of [`l2proto`] reads its columns itself.

use super::reader::Reader;
use l2proto::LinkSettings;
use l2proto::protocol::{Columns, LinkValue, Table};
use ovsdb::client::{Replica, RowView};
use ovsdb::value::Atom;
use std::sync::Arc;

/// The rows of an interface, its port and its bridge.
#[derive(Clone, Copy)]
pub(super) struct LinkRows<'a> {
    pub(super) bridge: RowView<'a>,
    /// The row of `AutoAttach` of the bridge.
    pub(super) auto_attach: Option<RowView<'a>>,
    /// A bridge's own port may have none.
    pub(super) port: Option<RowView<'a>>,
    /// A bridge's own interface may have none.
    pub(super) interface: Option<RowView<'a>>,
    replica: &'a Replica,
}

impl<'a> LinkRows<'a> {
    fn row(&self, table: Table) -> Option<RowView<'a>> {
        match table {
            Table::Bridge => Some(self.bridge),
            Table::Port => self.port,
            Table::Interface => self.interface,
            Table::AutoAttach => self.auto_attach,
        }
    }
}

impl Columns for LinkRows<'_> {
    fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
        let row = self.row(table)?;
        let datum = row.datum(name)?;
        if let Some((Atom::Integer(_), _)) = datum.pairs().first() {
            let number = |atom: &Atom| if let Atom::Integer(number) = atom { Some(*number) } else { None };
            let pairs = datum.pairs().iter().filter_map(|(k, v)| Some((number(k)?, number(v)?)));
            return Some(LinkValue::Numbers(pairs.collect()));
        }
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

    fn is_local(&self) -> bool {
        self.interface.is_none_or(|interface| interface.str("name") == self.bridge.str("name"))
    }

    fn members(&self) -> usize {
        self.port.map_or(1, |port| port.uuid_set("interfaces").len())
    }

    fn is_mirror_output(&self) -> bool {
        let Some(port) = self.port else { return false };
        let mirrors = self.bridge.uuid_set("mirrors").into_iter();
        let mut rows = mirrors.filter_map(|uuid| self.replica.row("Mirror", uuid));
        rows.any(|mirror| mirror.opt_uuid("output_port") == Some(port.uuid()))
    }
}

impl<'a> Reader<'a> {
    /// The rows of an interface of a bridge.
    pub(super) fn link_rows(
        &self,
        bridge: RowView<'a>,
        port: Option<RowView<'a>>,
        interface: Option<RowView<'a>>,
    ) -> LinkRows<'a> {
        let auto_attach = bridge.uuid_set("auto_attach").into_iter().next();
        let auto_attach = auto_attach.and_then(|uuid| self.replica.row("AutoAttach", uuid));
        LinkRows { bridge, auto_attach, port, interface, replica: self.replica }
    }

    /// The sessions of an interface. As in OVS a bad value counts as absent; the row names it.
    pub(super) fn links(&mut self, rows: LinkRows<'a>) -> Arc<[LinkSettings]> {
        let (sessions, ignored) = LinkSettings::parse(&rows);
        for setting in ignored {
            let row = rows.row(setting.table).unwrap_or(rows.bridge);
            self.hint(row, setting.place, setting.message);
        }
        sessions.into()
    }
}

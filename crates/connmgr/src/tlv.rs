//! Requests about mappings of tunnel metadata (`NXT_TLV_TABLE_*`).

use super::BridgeCtx;
use super::conn::{Conn, Outcome};
use flow::{TLV_BYTES, TLV_FIELDS, TlvError, TlvTable};
use ofp_actions::Reference;
use ofproto::tables::Tables;
use openflow::ErrorKind;
use openflow::msg::Message;
use openflow::msg::control::{TlvMap, TlvTable as TlvTableReply, TlvTableCommand, TlvTableMod};

fn error_of(why: TlvError) -> ErrorKind {
    match why {
        TlvError::BadIndex => ErrorKind::NxttmfcBadFieldIdx,
        TlvError::BadLength => ErrorKind::NxttmfcBadOptLen,
        TlvError::AlreadyMapped => ErrorKind::NxttmfcAlreadyMapped,
        TlvError::Duplicate => ErrorKind::NxttmfcDupEntry,
        TlvError::Full => ErrorKind::NxttmfcTableFull,
    }
}

/// The table after a change. A mapping used by a rule stays.
fn changed(tables: &Tables, m: &TlvTableMod) -> Result<TlvTable, ErrorKind> {
    let mut table = TlvTable::clone(tables.tlv());
    // As in OVS, the form of all mappings is checked first, also of those to delete.
    for map in &m.maps {
        TlvTable::check(map.index, map.len_bytes).map_err(error_of)?;
    }
    let is_used = |index: u8| tables.len_of_users(Reference::TunMetadata(index)) != 0;
    match m.command {
        TlvTableCommand::Add => {
            for map in &m.maps {
                table.add(map.index, map.class, map.ty, map.len_bytes).map_err(error_of)?;
            }
        }
        TlvTableCommand::Delete => {
            let gone: Vec<u8> = m.maps.iter().map(|map| map.index as u8).collect();
            if gone.iter().any(|index| is_used(*index)) {
                return Err(ErrorKind::NxttmfcInvalidTlvDel);
            }
            gone.iter().for_each(|index| table.remove(*index));
        }
        TlvTableCommand::Clear => {
            if table.iter().any(|(index, _)| is_used(index)) {
                return Err(ErrorKind::NxttmfcInvalidTlvDel);
            }
            table = TlvTable::EMPTY;
        }
    }
    Ok(table)
}

impl Conn {
    pub(super) fn tlv_table_mod(
        &mut self,
        m: &TlvTableMod,
        ctx: &BridgeCtx<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), ErrorKind> {
        let change = |tables: &mut Tables| {
            let table = changed(tables, m)?;
            tables.set_tlv(table);
            Ok(())
        };
        ctx.backer.change_tables(ctx.bridge, change).unwrap_or(Ok(()))?;
        outcome.tlv_changed = true;
        self.use_tlv(ctx);
        Ok(())
    }

    /// Decodes and encodes further messages by the bridge's mappings.
    pub(super) fn use_tlv(&mut self, ctx: &BridgeCtx<'_>) {
        if let Some(bridge) = ctx.bridge_view() {
            self.session.set_tlv(bridge.tables.tlv());
        }
    }

    pub(super) fn tlv_table(&mut self, xid: u32, ctx: &BridgeCtx<'_>) -> Result<(), ErrorKind> {
        let view = ctx.bridge_view();
        let mapped = view.iter().flat_map(|bridge| bridge.tables.tlv().iter());
        let maps = mapped.map(|(index, m)| TlvMap {
            class: m.class,
            ty: m.ty,
            len_bytes: m.len_bytes,
            index: index.into(),
        });
        let reply = TlvTableReply {
            max_option_bytes: TLV_BYTES as u32,
            max_fields: TLV_FIELDS as u16,
            maps: maps.collect(),
        };
        self.reply(&Message::TlvTableReply(reply), xid)
    }
}

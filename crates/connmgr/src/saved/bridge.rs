//! [`SavedBridge`]: settings of a bridge by controllers, besides rules, groups and meters.

use super::Reader;
use crate::ports::{config_bits, set_config};
use crate::{BridgeCtx, Connmgr};
use flow::{OfPort, TableId};
use ofproto::tables::Tables;
use ofproto::view::FragHandling;
use openflow::msg::control::{TableMiss, TableMod, Vacancy, table_config};
use serde_json::{Value, json};
use std::sync::Arc;

/// Ports in a text.
const PART_MAX: usize = 400;

/// Settings of a table by controllers.
#[derive(Clone, PartialEq, Eq, Debug)]
struct SavedTable {
    id: TableId,
    name: String,
    miss: Option<TableMiss>,
    evicts: bool,
    /// Thresholds of room in percent: down, up.
    vacancy: Option<(u8, u8)>,
}

/// State of a bridge for another process, or a part of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SavedBridge {
    /// The highest generation id of a master election.
    generation_id: Option<u64>,
    /// Treatment of fragments; `None` in a part without it.
    frags: Option<FragHandling>,
    /// Configuration bits of ports.
    ports: Vec<(OfPort, u32)>,
    /// The tables that a controller has set; `None` in a part without them.
    tables: Option<Vec<SavedTable>>,
}

impl SavedTable {
    /// `None`: as without a controller.
    fn of(tables: &Tables, id: TableId) -> Option<SavedTable> {
        let (name, miss, desc) = (tables.name(id).to_string(), tables.miss(id), tables.desc(id));
        let evicts = desc.config & table_config::EVICTION != 0;
        let vacancy = desc.vacancy.map(|v| (v.down_percent, v.up_percent));
        let has_any = !name.is_empty() || miss.is_some() || evicts || vacancy.is_some();
        has_any.then_some(SavedTable { id, name, miss, evicts, vacancy })
    }

    fn unset(id: TableId) -> SavedTable {
        SavedTable { id, name: String::new(), miss: None, evicts: false, vacancy: None }
    }

    fn value(&self) -> Value {
        let SavedTable { id, name, miss, evicts, vacancy } = self;
        let miss = miss.map(TableMiss::to_config);
        json!({"table": id.0, "name": name, "miss": miss, "evicts": evicts, "vacancy": vacancy})
    }

    fn read(value: &Value) -> Result<SavedTable, String> {
        let all = Reader(value.as_object().ok_or("tables: not an object")?);
        let percent = |value: &Value| value.as_u64()?.try_into().ok();
        Ok(SavedTable {
            id: TableId(all.number("table", 0)?),
            name: all.get("name", String::new(), |value| Some(value.as_str()?.to_string()))?,
            miss: all.optional("miss", |bits| TableMiss::from_config(bits.as_u64()?.try_into().ok()?))?,
            evicts: all.flag("evicts")?,
            vacancy: all.optional("vacancy", |value| match value.as_array()?.as_slice() {
                [down, up] => Some((percent(down)?, percent(up)?)),
                _ => None,
            })?,
        })
    }

    fn set(&self, tables: &mut Tables) {
        let SavedTable { id, name, miss, evicts, vacancy } = self;
        tables.set_name(*id, name);
        if let Some(miss) = *miss
            && tables.miss(*id) != Some(miss)
        {
            tables.set_miss(*id, miss);
        }
        let vacancy =
            vacancy.map(|(down_percent, up_percent)| Vacancy { down_percent, up_percent, now_percent: 0 });
        let config = if *evicts { table_config::EVICTION } else { 0 }
            | if vacancy.is_some() { table_config::VACANCY_EVENTS } else { 0 };
        tables.modify(*id, &TableMod { table: *id, config, eviction: None, vacancy });
    }
}

impl SavedBridge {
    /// Its texts: a line each.
    pub fn texts(&self) -> Vec<String> {
        let SavedBridge { generation_id, frags, ports, tables } = self;
        let flags = frags.map(FragHandling::to_flags);
        let tables: Option<Vec<Value>> =
            tables.as_ref().map(|tables| tables.iter().map(SavedTable::value).collect());
        let first = json!({"generation_id": generation_id, "frags": flags, "tables": tables});
        let mut texts = vec![first.to_string()];
        for part in ports.chunks(PART_MAX) {
            let ports: Vec<Value> = part.iter().map(|(port, bits)| json!([port.0, bits])).collect();
            texts.push(json!({ "ports": ports }).to_string());
        }
        texts
    }

    /// Reads a text: a part of a bridge.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn parse(text: &str) -> Result<SavedBridge, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let all = Reader(value.as_object().ok_or("not an object")?);
        let frags =
            all.optional("frags", |flags| FragHandling::from_flags(flags.as_u64()?.try_into().ok()?))?;
        let port = |value: &Value| match value.as_array()?.as_slice() {
            [port, bits] => Some((OfPort(port.as_u64()?.try_into().ok()?), bits.as_u64()?.try_into().ok()?)),
            _ => None,
        };
        let ports = all.get("ports", Vec::new(), |value| {
            value.as_array()?.iter().take(PART_MAX).map(port).collect::<Option<Vec<_>>>()
        })?;
        let tables = match all.0.get("tables") {
            None | Some(Value::Null) => None,
            Some(list) => {
                let list = list.as_array().ok_or("tables: not a list")?.iter().take(TableId::COUNT.into());
                Some(list.map(SavedTable::read).collect::<Result<_, _>>()?)
            }
        };
        Ok(SavedBridge { generation_id: all.optional("generation_id", Value::as_u64)?, frags, ports, tables })
    }
}

impl Connmgr {
    /// State of the bridge for another process.
    pub fn save_bridge(&self, ctx: &BridgeCtx<'_>) -> SavedBridge {
        let Some(view) = ctx.bridge_view() else { return SavedBridge::default() };
        let ports = view.ports.ports.values().map(|port| (port.of_port, config_bits(port.config)));
        SavedBridge {
            generation_id: self.shared.generation_id,
            frags: Some(view.frags),
            ports: ports.collect(),
            tables: Some(Tables::ids().filter_map(|id| SavedTable::of(&view.tables, id)).collect()),
        }
    }

    /// Goes on with state of another process, or a part of it.
    pub fn adopt_bridge(&mut self, saved: &SavedBridge, ctx: &BridgeCtx<'_>) {
        self.shared.generation_id = saved.generation_id.or(self.shared.generation_id);
        let Some(view) = ctx.bridge_view() else { return };
        let frags = saved.frags.filter(|frags| *frags != view.frags);
        let changes = |(port, bits): &&(OfPort, u32)| {
            view.ports.port(*port).is_some_and(|p| config_bits(p.config) != *bits)
        };
        let ports: Vec<_> = saved.ports.iter().filter(changes).collect();
        let tables: Vec<SavedTable> = match &saved.tables {
            None => Vec::new(),
            Some(listed) => Tables::ids()
                .filter_map(|id| {
                    let wanted = listed.iter().find(|table| table.id == id);
                    let changes = SavedTable::of(&view.tables, id).as_ref() != wanted;
                    changes.then(|| wanted.cloned().unwrap_or_else(|| SavedTable::unset(id)))
                })
                .collect(),
        };
        if frags.is_none() && ports.is_empty() && tables.is_empty() {
            return;
        }
        ctx.backer.change_bridge(ctx.bridge, |b| {
            b.frags = frags.unwrap_or(b.frags);
            for (port, bits) in ports {
                set_config(Arc::make_mut(&mut b.ports), *port, *bits, u32::MAX);
            }
            tables.iter().for_each(|table| table.set(&mut b.tables));
        });
    }
}

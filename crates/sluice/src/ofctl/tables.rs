//! Commands about tables.

use anyhow::{Result, anyhow, bail};
use flow::TableId;
use flow::text::parse_table;
use openflow::msg::control::{TableMiss, TableMod, Vacancy, table_config};
use openflow::msg::features::{TableFeatures, TableFeaturesCommand};
use openflow::text::{Printing, format_table_features};
use openflow::{Message, Multi, Version};

use super::{Names, Run, entries, json};
use crate::hint::hint;

/// Settings of `mod-table`.
pub(crate) const SETTINGS: [&str; 8] =
    ["controller", "continue", "drop", "evict", "noevict", "vacancy:LOW,HIGH", "novacancy", "name:NAME"];

pub(super) fn dump_tables(run: &mut Run<'_>, _: &str) -> Result<String> {
    run.dump_or(&Message::TableStatsRequest, entries!(TableStatsReply), |all, _| json::tables(all))
}

pub(super) fn dump_features(run: &mut Run<'_>, _: &str) -> Result<String> {
    run.needs(Version::V13)?;
    let (_, tables) = run
        .connection
        .gather(&Message::TableFeaturesRequest(Multi::all(Vec::new())), entries!(TableFeaturesReply))?;
    let options = run.connection.options();
    let how = Printing { options, names: &run.names, verbosity: 1 };
    Ok(format_table_features(&tables, run.connection.version(), how))
}

pub(super) fn dump_desc(run: &mut Run<'_>, _: &str) -> Result<String> {
    run.needs(Version::V14)?;
    run.dump(&Message::TableDescRequest)
}

/// A table's number or name, or `all`.
pub(super) fn table(text: &str, names: &Names) -> Result<TableId> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(TableId::ALL);
    }
    parse_table(text, names).ok_or_else(|| {
        let known = names.tables.all().iter().map(|(_, name)| name.as_str());
        anyhow!("unknown table \"{text}\"{}", hint(text, known))
    })
}

/// `LOW,HIGH`: percentages.
fn vacancy(text: Option<&str>) -> Result<Vacancy> {
    let Some(text) = text else { bail!("Vacancy down value missing") };
    let (down, up) = text.split_once(',').unwrap_or((text, ""));
    let percent = |text: &str, what: &str| match text.parse::<u8>() {
        Ok(n) if n <= 100 => Ok(n),
        _ if text.is_empty() => bail!("Vacancy {what} value missing"),
        _ => bail!("Invalid vacancy {what} value \"{text}\""),
    };
    let (down_percent, up_percent) = (percent(down, "down")?, percent(up, "up")?);
    if down_percent > up_percent {
        bail!("Invalid vacancy range, vacancy up should be greater than vacancy down (OFPBPC_BAD_VALUE)");
    }
    Ok(Vacancy { down_percent, up_percent, now_percent: 0 })
}

/// Change by a setting.
pub(super) enum Change {
    Miss(TableMiss),
    Evict(bool),
    Vacancy(Option<Vacancy>),
    Name(String),
}

/// A setting of `mod-table`.
pub(super) fn change(setting: &str) -> Result<Change> {
    let (name, value) = match setting.split_once(':') {
        Some((name, value)) => (name, Some(value)),
        None => (setting, None),
    };
    Ok(match name.to_ascii_lowercase().as_str() {
        "controller" => Change::Miss(TableMiss::Controller),
        "continue" => Change::Miss(TableMiss::Continue),
        "drop" => Change::Miss(TableMiss::Drop),
        "evict" => Change::Evict(true),
        "noevict" => Change::Evict(false),
        "vacancy" => Change::Vacancy(Some(vacancy(value)?)),
        "novacancy" => Change::Vacancy(None),
        "name" => Change::Name(value.unwrap_or_default().to_string()),
        _ => bail!("invalid table_mod setting {setting}{}", hint(setting, SETTINGS)),
    })
}

/// A setting of OpenFlow 1.4 leaves the others of the table as they are, which the switch tells.
pub(super) fn mod_table(run: &mut Run<'_>, args: &[String]) -> Result<String> {
    let [table_text, setting] = args else { bail!("needs a table and a setting") };
    let table = table(table_text, &run.names)?;
    let change = change(setting)?;
    let version = run.connection.version();
    if let Change::Miss(miss) = change {
        if !matches!(version, Version::V11 | Version::V12) {
            bail!("table_mod '{setting}' requires one of the OpenFlow versions OpenFlow11, OpenFlow12 (-O)");
        }
        let config = miss.to_config();
        let message = TableMod { table, config, eviction: None, vacancy: None };
        run.connection.carry_out(&[Message::TableMod(message)])?;
        return Ok(String::new());
    }
    if let Change::Name(name) = &change {
        if version < Version::V13 {
            bail!("table_mod '{setting}' requires OpenFlow13 or later (-O)");
        }
        return rename(run, table, name);
    }
    if version < Version::V14 {
        bail!("table_mod '{setting}' requires one of the OpenFlow versions OpenFlow14, OpenFlow15 (-O)");
    }
    let (_, descs) = run.connection.gather(&Message::TableDescRequest, entries!(TableDescReply))?;
    let chosen: Vec<TableMod> =
        descs.into_iter().filter(|desc| table == TableId::ALL || desc.table == table).collect();
    if chosen.is_empty() {
        bail!("the switch has no table {table_text}");
    }
    let messages: Vec<Message> =
        chosen.into_iter().map(|desc| Message::TableMod(changed(desc, &change))).collect();
    run.connection.carry_out(&messages)?;
    Ok(String::new())
}

/// Gives a table a name. A request before OpenFlow 1.5 describes all tables.
fn rename(run: &mut Run<'_>, table: TableId, name: &str) -> Result<String> {
    let ask = Message::TableFeaturesRequest(Multi::all(Vec::new()));
    let (_, mut tables) = run.connection.gather(&ask, entries!(TableFeaturesReply))?;
    let Some(own) = tables.iter_mut().find(|t| t.table == table) else {
        bail!("the switch has no table {}", table.0)
    };
    own.name = name.to_string();
    if run.connection.version() >= Version::V15 {
        let command = TableFeaturesCommand::Modify;
        tables = vec![TableFeatures { command, has_properties: false, ..own.clone() }];
    }
    let request = Message::TableFeaturesRequest(Multi::all(tables));
    run.connection.gather(&request, entries!(TableFeaturesReply))?;
    Ok(String::new())
}

fn changed(mut desc: TableMod, change: &Change) -> TableMod {
    let bit = |on: bool, bit: u32| if on { bit } else { 0 };
    match change {
        Change::Miss(_) | Change::Name(_) => {}
        Change::Evict(on) => {
            desc.config = desc.config & !table_config::EVICTION | bit(*on, table_config::EVICTION);
        }
        Change::Vacancy(vacancy) => {
            let on = bit(vacancy.is_some(), table_config::VACANCY_EVENTS);
            desc.config = desc.config & !table_config::VACANCY_EVENTS | on;
            desc.vacancy = *vacancy;
        }
    }
    desc.eviction = None;
    if let Some(vacancy) = &mut desc.vacancy {
        vacancy.now_percent = 0;
    }
    desc
}

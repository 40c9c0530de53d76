//! The rows are complete, and each setting has an effect or a notice.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ovsdb::client::ColumnValue;
use ovsdb::schema::{ColumnSchema, open_vswitch};
use ovsdb::value::{AtomicType, Datum};

use super::*;
use crate::config::Desired;
use crate::testbed::Bed;
use dpif::InterfaceType;

#[test]
fn rows_are_those_of_the_schema() {
    for text in TEXTS {
        assert_eq!(notation::read(text).err(), None);
    }
    let schema = open_vswitch();
    let names = |tables: Vec<&str>| tables.into_iter().map(str::to_string).collect::<BTreeSet<_>>();
    let known = names(tables().iter().map(|table| table.name).collect());
    assert_eq!(known, names(schema.tables.iter().map(|table| &*table.name).collect()));
    for table in &schema.tables {
        let rows = super::table(&table.name).unwrap();
        let columns = rows.columns().map(|row| row.column).collect();
        assert_eq!(names(columns), names(table.columns.iter().map(|c| &*c.name).collect()), "{}", table.name);
        let mut all = BTreeSet::new();
        for row in &rows.settings {
            let name = format!("{}.{}", rows.name, row.name());
            assert!(all.insert(row.name()), "{name} has two rows");
            let column = table.column(row.column).unwrap();
            assert!(row.key.is_none() || column.ty.is_map(), "{name}: no map");
            assert!(row.help.ends_with('.'), "{name}");
        }
    }
}

#[test]
fn faulty_rows_are_found() {
    for (text, fault) in [
        ("a | | by x::y | Help.", "a | | by x::y | Help."),
        ("[T] Help.\na | | by x::y", "a | | by x::y"),
        ("[T] Help.\na | | by x::y | Help. | more", "a | | by x::y | Help. | more"),
        ("[T] Help.\na | int x.. | by x::y | Help.", "a | int x.. | by x::y | Help."),
        ("[T] Help.\na | number | by x::y | Help.", "a | number | by x::y | Help."),
        ("[T] Help.\na | | done x::y | Help.", "a | | done x::y | Help."),
        ("[T]", "[T]"),
    ] {
        assert_eq!(notation::read(text), Err(fault));
    }
}

/// A renamed module renames itself in the rows.
#[test]
fn modules_of_effects_exist() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let settings = tables().iter().flat_map(|table| &table.settings);
    let modules: BTreeSet<&str> = settings
        .filter_map(|setting| match setting.effect {
            Effect::CarriedOut { by, .. } | Effect::Status { by } => Some(by),
            _ => None,
        })
        .collect();
    for module in modules {
        let (name, path) = module.split_once("::").expect("crate::module");
        let file = crates.join(name.replace('_', "-")).join("src").join(path.replace("::", "/"));
        assert!(file.with_extension("rs").exists() || file.join("mod.rs").exists(), "{module}");
    }
}

/// Names of a port type in rows of options: its own, and the family that it belongs to.
fn named_in_rows(port_type: &InterfaceType) -> Vec<&'static str> {
    let family = port_type.names().contains(&"vxlan").then_some("tunnel");
    port_type.names().iter().copied().chain(family).collect()
}

/// Each key that a port type reads has a row for that type, and the other way round.
#[test]
fn rows_of_options_are_the_keys_of_port_types() {
    let rows = table("Interface").unwrap();
    for port_type in InterfaceType::all() {
        let names = named_in_rows(port_type);
        for key in port_type.keys() {
            let row = rows.key("options", key).unwrap_or_else(|| panic!("{port_type:?}: {key} has no row"));
            assert!(
                row.types.iter().any(|name| names.contains(name)),
                "{port_type:?}: {key} {:?}",
                row.types
            );
        }
    }
    let options = rows.settings.iter().filter(|row| row.column == "options");
    for (row, key) in options.filter_map(|row| Some((row, row.key?))) {
        let reads = |name: &str| {
            let of_type = |t: &&InterfaceType| named_in_rows(t).contains(&name);
            InterfaceType::all().iter().find(of_type).is_some_and(|t| t.keys().contains(&key))
        };
        let unread: Vec<_> = row.types.iter().filter(|name| **name != "dpdk" && !reads(name)).collect();
        let is_carried_out = matches!(row.effect, Effect::CarriedOut { .. });
        assert!(!is_carried_out || unread.is_empty(), "{key}: {unread:?}");
    }
}

/// A database with a row in each table.
fn full() -> Bed {
    let mut bed = Bed::new();
    bed.add_br("br0", "");
    bed.add_port("br0", "p1", &[], &[]);
    bed.add_port("br0", "p2", &[], &[]);
    let (root, bridge, port) = (bed.root(), bed.row("Bridge", "br0"), bed.row("Port", "p1"));
    // The output of a mirror takes no part in a spanning tree.
    let output = bed.row("Port", "p2");
    let interface = bed.row("Interface", "p1");
    bed.txn(|txn| {
        let text = |text: &str| ColumnValue::from(text);
        let controller = [
            ("target", text("tcp:192.0.2.1")),
            ("local_ip", text("192.0.2.7")),
            ("controller_rate_limit", 200.into()),
        ];
        let controller = txn.insert("Controller", controller);
        let flow_table = txn.insert("Flow_Table", [("name", text("t"))]);
        let ports = [("output_port", output), ("select_src_port", port), ("select_dst_port", port)]
            .map(|(column, port)| (column, ColumnValue::refs([port])));
        let mirror = txn.insert("Mirror", [("name", text("m0"))].into_iter().chain(ports));
        let targets = || [("targets", text("127.0.0.1:1"))];
        let (netflow, sflow) = (txn.insert("NetFlow", targets()), txn.insert("sFlow", targets()));
        let ipfix = txn.insert("IPFIX", targets());
        let auto_attach = txn.insert("AutoAttach", [("system_name", text("a"))]);
        let references = [
            ("controller", ColumnValue::from(controller)),
            ("flow_tables", ColumnValue::ref_map([(3, flow_table)])),
            ("mirrors", mirror.into()),
            ("netflow", netflow.into()),
            ("sflow", sflow.into()),
            ("ipfix", ipfix.into()),
            ("auto_attach", auto_attach.into()),
        ];
        txn.update("Bridge", bridge, references);
        let of_flows = txn.insert("IPFIX", targets());
        let set = [
            ("id", ColumnValue::from(5)),
            ("bridge", ColumnValue::refs([bridge])),
            ("ipfix", of_flows.into()),
            ("local_group_id", 5.into()),
        ];
        txn.insert("Flow_Sample_Collector_Set", set);
        let queue = txn.insert("Queue", [("dscp", ColumnValue::from(1))]);
        let qos = [("type", text("linux-htb")), ("queues", ColumnValue::ref_map([(0, queue)]))];
        let qos = txn.insert("QoS", qos);
        txn.update("Port", port, [("qos", ColumnValue::from(qos))]);
        let lldp = ColumnValue::from(Datum::map([("enable", "true")]));
        txn.update("Interface", interface, [("cfm_mpid", 3.into()), ("lldp", lldp)]);
        let timeouts = Datum::map([("tcp_close", 9)]);
        let policy = txn.insert("CT_Timeout_Policy", [("timeouts", ColumnValue::from(timeouts))]);
        let zone =
            txn.insert("CT_Zone", [("timeout_policy", ColumnValue::from(policy)), ("limit", 9.into())]);
        let datapath = txn.insert("Datapath", [("ct_zones", ColumnValue::ref_map([(5, zone)]))]);
        let ssl = ["private_key", "certificate", "ca_cert"].map(|column| (column, text("/f.pem")));
        let ssl = txn.insert("SSL", ssl);
        let manager = txn.insert("Manager", [("target", text("tcp:192.0.2.1"))]);
        let references = [
            ("datapaths", ColumnValue::ref_map([("netdev", datapath)])),
            ("ssl", ssl.into()),
            ("manager_options", manager.into()),
        ];
        txn.update("Open_vSwitch", root, references);
    });
    bed
}

/// Sets a column of the row of a table.
fn set(bed: &mut Bed, table: &str, column: &str, value: impl Into<ColumnValue>) {
    let named = match table {
        "Bridge" => "br0",
        "Port" | "Interface" => "p1",
        _ => "",
    };
    let row =
        bed.replica().rows(table).find(|row| named.is_empty() || row.str("name") == named).unwrap().uuid();
    bed.txn(|txn| txn.update(table, row, [(column, value.into())]));
}

/// Values of a column other than references, the default last.
fn candidates(column: &ColumnSchema, values: &Values) -> Vec<Datum> {
    let key = &column.ty.key;
    let mut all: Vec<Datum> = match (&column.ty.value, key.ty, &key.enumeration, values) {
        (Some(value), AtomicType::String, ..) if value.ty == AtomicType::String => {
            vec![Datum::map([("unheard-of", "x")])]
        }
        (Some(value), AtomicType::Integer, ..) if value.ty == AtomicType::Integer => {
            vec![Datum::map([(7_i64, 9_i64)])]
        }
        (None, _, Some(words), _) => words.iter().map(|word| Datum::from(word.clone())).collect(),
        (None, AtomicType::Boolean, ..) => vec![true.into(), false.into()],
        (None, AtomicType::Integer, ..) => {
            let above = |n| Datum::from(key.min_integer.unwrap_or(7) + n);
            vec![if above(1) == column.default { above(2) } else { above(1) }]
        }
        (None, AtomicType::String, _, Values::Text { example, .. }) => vec![(*example).into()],
        _ => Vec::new(),
    };
    if column.ty.min == 0 || column.ty.value.is_some() {
        all.push(column.default.clone());
    }
    all
}

/// Each column that users set changes the desired state or is reported, and so is a wrong value.
#[test]
fn no_column_is_silent() {
    let mut bed = full();
    let schema = open_vswitch();
    for rows in tables() {
        let table = schema.table(rows.name).unwrap();
        for row in rows.columns().filter(|row| row.is_read()) {
            let name = format!("{}.{}", rows.name, row.column);
            let column = table.column(row.column).unwrap();
            let before = bed.desired();
            // A list of interfaces cannot be empty, and a set of collectors has a bridge.
            let is_needed = ["Port.interfaces", "Flow_Sample_Collector_Set.bridge"].contains(&name.as_str());
            if !column.mutable || is_needed {
                continue;
            }
            let old = bed.replica().rows(rows.name).map(|row| (row.uuid(), row.datum(&column.name).cloned()));
            let old: Vec<_> = old.collect();
            let mut check = |value: Datum, restored: bool| {
                set(&mut bed, rows.name, row.column, value);
                let after = bed.desired();
                if restored {
                    for (uuid, datum) in &old {
                        let datum = datum.clone().unwrap();
                        bed.txn(|txn| txn.update(rows.name, *uuid, [(row.column, datum.into())]));
                    }
                }
                after
            };
            // Rows without references are gone: nothing restores them.
            let is_reference = column.ty.key.reference.is_some()
                || column.ty.value.as_ref().is_some_and(|v| v.reference.is_some());
            let states: Vec<Desired> =
                candidates(column, &row.values).into_iter().map(|v| check(v, !is_reference)).collect();
            assert!(
                states.iter().any(|state| *state != before),
                "{name}: nothing changes and nothing is said"
            );
            if let Values::Text { wrong: Some(wrong), .. } = row.values {
                let after = check(wrong.into(), true);
                assert!(said(&after) != said(&before), "{name}={wrong}: nothing is said");
            }
            if is_reference {
                bed = full();
            }
        }
    }
}

/// The reports of a state.
fn said(desired: &Desired) -> (BTreeSet<String>, BTreeSet<String>) {
    let refused = desired.refused.values().cloned().collect();
    (desired.notices.iter().map(|notice| notice.message.clone()).collect(), refused)
}

/// Interface types for the tests of an option.
fn types_of(setting: &Setting) -> Vec<&'static str> {
    let types = setting.types.iter().map(|name| if *name == "tunnel" { "vxlan" } else { name });
    types.filter(|name| *name != "dpdk").collect()
}

/// Other keys that a key depends on.
fn context(column: &str, key: &str, type_name: &str) -> BTreeMap<String, String> {
    let pairs: &[(&str, &str)] = match (column, type_name) {
        ("bfd", _) => &[("enable", "true")],
        ("other_config", _) if key.starts_with("cfm_") => &[("cfm_extended", "true")],
        ("options", "srv6") => &[("remote_ip", "2001:db8::1")],
        ("options", "patch") => &[("peer", "p9")],
        ("options", "erspan" | "ip6erspan") => &[("remote_ip", "192.0.2.9"), ("erspan_ver", "1")],
        ("options", "vxlan" | "geneve" | "gre" | "ip6gre" | "gtpu") => &[("remote_ip", "192.0.2.9")],
        _ => &[],
    };
    let others = pairs.iter().filter(|(name, _)| *name != key);
    others.map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// Valid values of a key, and wrong ones.
fn samples(values: &Values) -> (Vec<String>, Vec<String>) {
    let texts = |all: &[&str]| all.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    match values {
        Values::Schema => (Vec::new(), Vec::new()),
        Values::Flag => (texts(&["true", "false"]), texts(&["maybe"])),
        Values::OneOf(words) => (texts(words), texts(&["nonsense"])),
        Values::Text { example, wrong } => (texts(&[example]), texts(wrong.as_slice())),
        Values::Integer { min, max } => {
            let numbers = [*min, min.map(|n| n + 1), *max, Some(77), Some(5001)].into_iter().flatten();
            let fits = |n: &i64| min.is_none_or(|min| *n >= min) && max.is_none_or(|max| *n <= max);
            let beyond = [min.map(|n| n - 1), max.map(|n| n + 1)].into_iter().flatten();
            let wrong = beyond.map(|n| n.to_string()).chain(["x".to_string()]).collect();
            (numbers.filter(fits).map(|n| n.to_string()).collect(), wrong)
        }
    }
}

/// Each documented key changes the desired state or is reported, and each wrong value is reported.
#[test]
fn no_key_is_silent() {
    let mut bed = full();
    for rows in tables() {
        let keys = rows.settings.iter().filter_map(|row| Some((row, row.key?)));
        for (row, key) in keys.filter(|(row, _)| row.is_read()) {
            let types = if row.column == "options" { types_of(row) } else { vec![""] };
            for type_name in types {
                check_key(&mut bed, rows.name, row, key, type_name);
            }
            if row.column == "options" && !row.types.is_empty() {
                let states = ["null", "dpdk"].map(|type_name| {
                    set(&mut bed, "Interface", "type", type_name);
                    let (valid, _) = samples(&row.values);
                    set(&mut bed, "Interface", "options", Datum::map([(key, valid[0].as_str())]));
                    said(&bed.desired())
                });
                let [null, dpdk] = states.map(|(notices, _)| notices);
                assert!(
                    null.iter().any(|text| text.starts_with(&format!("{} has no effect", row.name()))),
                    "{null:?}"
                );
                assert!(
                    dpdk.iter().any(|text| text.contains("interface type dpdk is not supported")),
                    "{dpdk:?}"
                );
                set(&mut bed, "Interface", "options", Datum::empty_map());
                set(&mut bed, "Interface", "type", "");
            }
        }
    }
}

/// The column of a bridge that enables the spanning tree to which a key belongs.
fn tree_of(key: &str) -> Option<&'static str> {
    [("stp-", "stp_enable"), ("rstp-", "rstp_enable")]
        .into_iter()
        .find(|(prefix, _)| key.starts_with(prefix))
        .map(|(_, column)| column)
}

fn check_key(bed: &mut Bed, table: &str, row: &Setting, key: &str, type_name: &str) {
    if let Some(column) = tree_of(key) {
        set(bed, "Bridge", column, true);
    }
    let name = format!("{table}.{} {type_name}", row.name());
    let others = context(row.column, key, type_name);
    if row.column == "options" {
        set(bed, table, "type", type_name);
    }
    if key.starts_with("lacp-") {
        set(bed, "Port", "lacp", "active");
    }
    if key.starts_with("mcast-snooping-") {
        set(bed, "Bridge", "mcast_snooping_enable", true);
    }
    let mut state = |value: Option<&str>| {
        let pairs = others.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let all: Vec<(&str, &str)> = pairs.chain(value.map(|value| (key, value))).collect();
        let datum = match table {
            "CT_Timeout_Policy" => {
                Datum::map(all.iter().map(|(key, value)| (*key, value.parse::<i64>().unwrap())))
            }
            _ => Datum::map(all),
        };
        set(bed, table, row.column, datum);
        bed.desired()
    };
    let before = state(None);
    let (valid, mut wrong) = samples(&row.values);
    assert!(
        valid.iter().any(|text| state(Some(text)) != before),
        "{name}: nothing changes and nothing is said"
    );
    if table == "CT_Timeout_Policy" {
        // The schema refuses them.
        wrong.clear();
    }
    for text in wrong {
        let after = said(&state(Some(&text)));
        // Without a `remote_ip` the same error is there before.
        assert!(after != said(&before) || !after.1.is_empty(), "{name}={text}: nothing is said");
    }
    for text in valid.iter().filter(|_| matches!(row.effect, Effect::CarriedOut { but: None, .. })) {
        let (told, _) = said(&state(Some(text)));
        let (known, _) = said(&before);
        let told: Vec<_> = told.difference(&known).collect();
        assert!(told.iter().all(|told| !told.contains(" is not a ")), "{name}={text} is valid: {told:?}");
    }
    set(bed, table, row.column, Datum::empty_map());
    if let Some(column) = tree_of(key) {
        set(bed, "Bridge", column, false);
    }
    if row.column == "options" {
        set(bed, table, "type", "");
    }
}

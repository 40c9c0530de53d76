//! Prefix lookups of flow tables, as configured.

use flow::fields::FieldId;
use std::collections::BTreeMap;

/// Number of tables of a bridge that can be configured.
const TABLES: u8 = 255;

/// Logs the fields of all tables of a bridge; those without an entry have the default ones.
pub(super) fn log(bridge: &str, prefixes: &BTreeMap<u8, Vec<FieldId>>) {
    if log::log_enabled!(target: "bridge", log::Level::Debug) {
        for (first, last, fields) in ranges(prefixes) {
            log::debug!(target: "bridge", "bridge {bridge} tables {first}-{last}: Prefix lookup with: {fields}.");
        }
    }
}

/// First and last table of each range with the same fields, and those.
fn ranges(prefixes: &BTreeMap<u8, Vec<FieldId>>) -> Vec<(u8, u8, String)> {
    let mut out: Vec<(u8, u8, String)> = Vec::new();
    for n in 0..TABLES {
        let fields = prefixes.get(&n).map_or(&ofproto::tables::DEFAULT_PREFIX_FIELDS[..], Vec::as_slice);
        let names: Vec<_> = fields.iter().map(|field| field.def().name).collect();
        let names = if names.is_empty() { "none".to_string() } else { names.join(",") };
        match out.last_mut() {
            Some((_, last, before)) if *before == names => *last = n,
            _ => out.push((n, n, names)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As OVS 3.5 logs them.
    #[test]
    fn tables_with_the_same_fields_are_one_range() {
        let all = "ip_dst,ip_src,ipv6_dst,ipv6_src";
        let range = |first, last, fields: &str| (first, last, fields.to_string());
        assert_eq!(ranges(&BTreeMap::new()), [range(0, 254, all)]);
        let some = [(5, vec![FieldId::IpDst]), (6, vec![FieldId::IpDst]), (12, Vec::new())].into();
        let expected = [
            range(0, 4, all),
            range(5, 6, "ip_dst"),
            range(7, 11, all),
            range(12, 12, "none"),
            range(13, 254, all),
        ];
        assert_eq!(ranges(&some), expected);
    }
}

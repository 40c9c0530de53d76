//! Commands about bonds, with the texts of OVS.

use super::datapath::{WithThreads, with_threads};
use super::{Optional, Parsed, Reply, Rows, Word, command};
use crate::control_plane::ControlPlane;
use flow::MacAddr;
use ofproto::bond::slb_hash;
use std::fmt::Write as _;

/// An address, a VLAN and a basis.
const HASHED: (Parsed<MacAddr>, Optional<Parsed<u16>>, Optional<Parsed<u32>>) = (
    Parsed("mac", |text| MacAddr::parse(text).ok_or_else(|| "invalid mac".to_string())),
    // As in OVS, the low bits of a number count.
    Optional(Parsed("vlan", |text| {
        text.parse().map(|n: i64| n as u16).map_err(|_| "invalid vlan".to_string())
    })),
    Optional(Parsed("basis", |text| {
        text.parse().map(|n: i64| n as u32).map_err(|_| "invalid basis".to_string())
    })),
);

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "bond/disable-member",
        (Word("port"), Word("member")),
        "stop sending packets on a member of a bond",
        disable,
    ),
    &command(
        "bond/enable-member",
        (Word("port"), Word("member")),
        "send packets on a member of a bond again",
        enable,
    ),
    &command("bond/hash", HASHED, "compute the hash of an address in a balance-slb bond", hash),
    &command("bond/list", (), "list the bonds with their modes and members", list),
    &command(
        "bond/migrate",
        (Word("port"), Word("hash"), Word("member")),
        "move the traffic of a hash to another member of a bond",
        migrate,
    ),
    &command(
        "bond/set-active-member",
        (Word("port"), Word("member")),
        "choose the active member of a bond",
        set_active,
    ),
    &command("bond/show", Optional(Word("port")), "show the state of all bonds or one", show),
    &command(
        "dpif-netdev/bond-show",
        Optional(Word("dp")),
        "show the bonds that userspace datapaths balance",
        datapath_bonds,
    ),
];

/// `bond/list`
fn list(plane: &mut ControlPlane, (): ()) -> Reply {
    let mut out = String::from("bond\ttype\trecircID\tmembers\n");
    for row in plane.switch.bonds().all().map(|bond| bond.list_row()) {
        let members = row.members.join(", ");
        let _ = writeln!(out, "{}\t{}\t{}\t{members}", row.name, row.mode.name(), row.recirc_id);
    }
    Reply::from(Ok(out))
}

/// `bond/show [PORT]`
fn show(plane: &mut ControlPlane, port: Option<&str>) -> Reply {
    let now_ms = sys::clock::monotonic_ms();
    let bonds = plane.switch.bonds();
    Reply::from(match port {
        Some(name) => bonds.find(name).map(|bond| bond.show(now_ms)).ok_or("no such bond".to_string()),
        None => Ok(bonds.all().map(|bond| bond.show(now_ms)).collect()),
    })
}

/// The answer of a change of a bond.
fn answer(result: Result<&'static str, &'static str>) -> Reply {
    Reply::from(result.map(|text| format!("{text}\n")).map_err(str::to_string))
}

/// `bond/migrate PORT HASH MEMBER`
fn migrate(plane: &mut ControlPlane, (port, hash, member): (&str, &str, &str)) -> Reply {
    answer(plane.switch.bonds().change(port, |bond| bond.migrate(hash, member)))
}

/// `bond/set-active-member PORT MEMBER`
fn set_active(plane: &mut ControlPlane, (port, member): (&str, &str)) -> Reply {
    answer(plane.switch.bonds().change(port, |bond| bond.make_active(member)))
}

/// `bond/enable-member PORT MEMBER`
fn enable(plane: &mut ControlPlane, (port, member): (&str, &str)) -> Reply {
    answer(plane.switch.bonds().change(port, |bond| bond.set_enabled(member, true)))
}

/// `bond/disable-member PORT MEMBER`
fn disable(plane: &mut ControlPlane, (port, member): (&str, &str)) -> Reply {
    answer(plane.switch.bonds().change(port, |bond| bond.set_enabled(member, false)))
}

/// `dpif-netdev/bond-show [DP]`
fn datapath_bonds(plane: &mut ControlPlane, dp: Option<&str>) -> Reply {
    let shown = |datapaths: Vec<WithThreads<'_>>| {
        let mut out = String::new();
        for balancer in datapaths.into_iter().filter_map(|(i, _)| i.datapath.bond_balancer()) {
            let bonds = balancer.bonds();
            out.push_str(if bonds.is_empty() { "" } else { "Bonds:\n" });
            for (id, members) in bonds {
                let _ = writeln!(out, "  bond-id {id}:");
                for (hash, port) in members.iter().enumerate() {
                    let _ = writeln!(out, "    bucket {hash} - member {port}");
                }
            }
        }
        out
    };
    with_threads(&plane.switch, dp).map(shown).into()
}

/// `bond/hash MAC [VLAN] [BASIS]`
fn hash(_: &mut ControlPlane, hashed: (MacAddr, Option<u16>, Option<u32>)) -> Reply {
    format!("{}\n", hash_of(hashed)).into()
}

fn hash_of((mac, vlan, basis): (MacAddr, Option<u16>, Option<u32>)) -> u8 {
    slb_hash(mac, vlan.unwrap_or(0), basis.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::Arguments as _;
    use super::*;

    /// Answers of OVS 3.5.
    #[test]
    fn addresses_have_the_hashes_of_ovs() {
        for (line, expected) in [
            ("00:00:00:00:00:01", Ok(68)),
            ("00:00:00:00:00:02", Ok(244)),
            ("50:54:00:00:00:05 10", Ok(64)),
            ("50:54:00:00:00:05 10 7", Ok(29)),
            ("50:54:00:00:00:05 0 99999", Ok(248)),
            ("ff:12:34:56:78:03 3 333", Ok(64)),
            ("ff:12:34:56:78:09 9 999", Ok(92)),
            ("00:00:00:00:00:01 5000", Ok(166)),
            ("00:00:00:00:00:01 70000", Ok(188)),
            ("00:00:00:00:00:01 -1", Ok(248)),
            ("00:00:00:00:00:01 5 4294967296", Ok(215)),
            ("foo", Err("invalid mac")),
            ("00:00:00:00:00:01 foo", Err("invalid vlan")),
            ("00:00:00:00:00:01 5 x", Err("invalid basis")),
        ] {
            let args: Vec<String> = line.split(' ').map(String::from).collect();
            assert_eq!(HASHED.parse(&args).map(hash_of), expected.map_err(String::from), "{line}");
        }
    }
}

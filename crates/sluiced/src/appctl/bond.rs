//! Commands about bonds, with the texts of OVS.

use super::datapath::{WithThreads, with_threads};
use super::{Command, Reply, command};
use crate::control_plane::ControlPlane;
use flow::MacAddr;
use ofproto::bond::slb_hash;
use std::fmt::Write as _;

/// The commands of this module.
pub(super) const ROWS: &[Command] = &[
    command(
        "bond/disable-member",
        "port member",
        2..=2,
        "stop sending packets on a member of a bond",
        disable,
    ),
    command("bond/enable-member", "port member", 2..=2, "send packets on a member of a bond again", enable),
    command(
        "bond/hash",
        "mac [vlan] [basis]",
        1..=3,
        "compute the hash of an address in a balance-slb bond",
        hash,
    ),
    command("bond/list", "", 0..=0, "list the bonds with their modes and members", list),
    command(
        "bond/migrate",
        "port hash member",
        3..=3,
        "move the traffic of a hash to another member of a bond",
        migrate,
    ),
    command("bond/set-active-member", "port member", 2..=2, "choose the active member of a bond", set_active),
    command("bond/show", "[port]", 0..=1, "show the state of all bonds or one", show),
    command(
        "dpif-netdev/bond-show",
        "[dp]",
        0..=1,
        "show the bonds that userspace datapaths balance",
        datapath_bonds,
    ),
];

/// `bond/list`
fn list(plane: &mut ControlPlane, _: &[String]) -> Reply {
    let mut out = String::from("bond\ttype\trecircID\tmembers\n");
    for row in plane.switch.bonds().all().map(|bond| bond.list_row()) {
        let members = row.members.join(", ");
        let _ = writeln!(out, "{}\t{}\t{}\t{members}", row.name, row.mode.name(), row.recirc_id);
    }
    Reply::from(Ok(out))
}

/// `bond/show [PORT]`
fn show(plane: &mut ControlPlane, args: &[String]) -> Reply {
    let now_ms = sys::clock::monotonic_ms();
    let bonds = plane.switch.bonds();
    Reply::from(match args.first() {
        Some(name) => bonds.find(name).map(|bond| bond.show(now_ms)).ok_or("no such bond".to_string()),
        None => Ok(bonds.all().map(|bond| bond.show(now_ms)).collect()),
    })
}

/// The answer of a change of a bond.
fn answer(result: Result<&'static str, &'static str>) -> Reply {
    Reply::from(result.map(|text| format!("{text}\n")).map_err(str::to_string))
}

/// `bond/migrate PORT HASH MEMBER`
fn migrate(plane: &mut ControlPlane, args: &[String]) -> Reply {
    answer(plane.switch.bonds().change(&args[0], |bond| bond.migrate(&args[1], &args[2])))
}

/// `bond/set-active-member PORT MEMBER`
fn set_active(plane: &mut ControlPlane, args: &[String]) -> Reply {
    answer(plane.switch.bonds().change(&args[0], |bond| bond.make_active(&args[1])))
}

/// `bond/enable-member PORT MEMBER`
fn enable(plane: &mut ControlPlane, args: &[String]) -> Reply {
    answer(plane.switch.bonds().change(&args[0], |bond| bond.set_enabled(&args[1], true)))
}

/// `bond/disable-member PORT MEMBER`
fn disable(plane: &mut ControlPlane, args: &[String]) -> Reply {
    answer(plane.switch.bonds().change(&args[0], |bond| bond.set_enabled(&args[1], false)))
}

/// `dpif-netdev/bond-show [DP]`
fn datapath_bonds(plane: &mut ControlPlane, args: &[String]) -> Reply {
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
    with_threads(&plane.switch, args.first()).map(shown).into()
}

/// `bond/hash MAC [VLAN] [BASIS]`
fn hash(_: &mut ControlPlane, args: &[String]) -> Reply {
    Reply::from(hash_of(args).map(|hash| format!("{hash}\n")))
}

fn hash_of(args: &[String]) -> Result<u8, String> {
    // As in OVS, the low bits of a number count.
    let number = |at: usize, name: &str| match args.get(at) {
        None => Ok(0),
        Some(text) => text.parse::<i64>().map_err(|_| format!("invalid {name}")),
    };
    let mac = args.first().and_then(|text| MacAddr::parse(text)).ok_or("invalid mac")?;
    let (vlan, basis) = (number(1, "vlan")? as u16, number(2, "basis")? as u32);
    Ok(slb_hash(mac, vlan, basis))
}

#[cfg(test)]
mod tests {
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
            assert_eq!(hash_of(&args), expected.map_err(String::from), "{line}");
        }
    }
}

//! `bond/hash`: the hash that a bond of mode `balance-slb` gives to an address.

use super::{Command, Reply, command};
use crate::control_plane::ControlPlane;
use flow::MacAddr;

/// The commands of this module.
pub(super) const ROWS: &[Command] = &[command(
    "bond/hash",
    "mac [vlan] [basis]",
    1..=3,
    "compute the hash of an address in a balance-slb bond",
    hash,
)];

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
    let key = u64::from(vlan) << 48 | mac.to_u64();
    Ok(murmur(&[key as u32, (key >> 32) as u32], basis) as u8)
}

/// MurmurHash3 of whole words (public domain).
fn murmur(words: &[u32], basis: u32) -> u32 {
    let mut hash = words.iter().fold(basis, |hash, word| {
        let mixed = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
        (hash ^ mixed).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    hash ^= 4 * words.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
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

//! Lines of meters and of multicast groups, which [`super::notes`] are made of.

use crate::switch::{GroupNote, MeterNote};
use dpif::MeterBandStats;
use dpif_netdev::MeterLevels;
use l2proto::membership::Protocol;
use ofproto::mcast::McastEntry;
use std::fmt;
use std::str::FromStr;

/// Words of an entry, and of one that was removed.
pub(super) const GROUP: &str = "group";
pub(super) const GROUP_GONE: &str = "group-gone";

/// The next field of a line that has one.
pub(super) type Fields<'a, 'f> = &'f mut dyn FnMut() -> Result<&'a str, ()>;

pub(super) fn number<T: FromStr>(text: &str) -> Result<T, ()> {
    text.parse().map_err(drop)
}

/// Writes the line of a meter.
pub(super) fn put_meter(f: &mut fmt::Formatter<'_>, meter: &MeterNote) -> fmt::Result {
    let MeterNote { bridge, id, levels: MeterLevels { age_us, used, bands } } = meter;
    write!(f, "meter\t{bridge}\t{id}\t{age_us}\t{}\t{}", used.packets, used.bytes)?;
    for (tokens, stats) in bands {
        write!(f, "\t{tokens}\t{}\t{}", stats.packets, stats.bytes)?;
    }
    writeln!(f)
}

/// Reads the fields of a meter behind the word.
pub(super) fn meter(text: Fields<'_, '_>) -> Result<MeterNote, ()> {
    let (bridge, id, age_us) = (text()?.to_string(), number(text()?)?, number(text()?)?);
    let used = MeterBandStats { packets: number(text()?)?, bytes: number(text()?)? };
    let mut bands = Vec::new();
    while let Ok(tokens) = text() {
        let stats = MeterBandStats { packets: number(text()?)?, bytes: number(text()?)? };
        bands.push((number(tokens)?, stats));
    }
    Ok(MeterNote { bridge, id, levels: MeterLevels { age_us, used, bands } })
}

/// Writes the line of a group.
pub(super) fn put_group(f: &mut fmt::Formatter<'_>, note: &GroupNote) -> fmt::Result {
    let GroupNote { bridge, entry } = note;
    let Some(McastEntry { is_gone, vlan, group, port, seen_ms }) = entry else {
        return writeln!(f, "groups\t{bridge}");
    };
    let age = seen_ms.map_or("-".to_string(), |age_ms| age_ms.to_string());
    let group = group.map_or("-\t-".to_string(), |(ip, protocol)| format!("{ip}\t{protocol}"));
    let word = if *is_gone { GROUP_GONE } else { GROUP };
    writeln!(f, "{word}\t{bridge}\t{vlan}\t{port}\t{age}\t{group}")
}

/// Reads the fields of an entry behind the word.
pub(super) fn group(word: &str, text: Fields<'_, '_>) -> Result<GroupNote, ()> {
    let is_gone = word == GROUP_GONE;
    let (bridge, vlan, port) = (text()?.to_string(), number(text()?)?, text()?.to_string());
    let age = text()?;
    let seen_ms = if age == "-" { None } else { Some(number(age)?) };
    let (group, protocol) = (text()?, text()?);
    let known = Protocol::ALL.into_iter().find(|known| known.to_string() == protocol);
    let group = if group == "-" { None } else { Some((number(group)?, known.ok_or(())?)) };
    Ok(GroupNote { bridge, entry: Some(McastEntry { is_gone, vlan, group, port, seen_ms }) })
}

#[cfg(test)]
mod tests {
    use super::super::notes::{Note, read as read_notes};
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let counts = |packets| MeterBandStats { packets, bytes: packets * 60 };
        let mut lines = vec!["groups\tbr0\n".to_string()];
        for bands in [vec![], vec![(-7, counts(3)), (1 << 40, counts(0))]] {
            let levels = MeterLevels { age_us: 1500, used: counts(9), bands };
            lines.push(
                Note::Meter(MeterNote { bridge: "br0".to_string(), id: 0xffff_fffd, levels }).to_string(),
            );
        }
        let igmp = Some(("::ffff:239.1.2.3".parse().unwrap(), Protocol::IgmpV3));
        let mld = Some(("ff05::1".parse().unwrap(), Protocol::MldV1));
        for (group, seen_ms) in [(igmp, Some(1234)), (mld, None), (None, Some(0))] {
            let entry =
                Some(McastEntry { is_gone: group == mld, vlan: 7, group, port: "p1".to_string(), seen_ms });
            lines.push(Note::Group(GroupNote { bridge: "br0".to_string(), entry }).to_string());
        }
        assert_eq!(lines[2], "meter\tbr0\t4294967293\t1500\t9\t540\t-7\t3\t180\t1099511627776\t0\t0\n");
        assert_eq!(lines[4], "group-gone\tbr0\t7\tp1\t-\tff05::1\tMLDv1\n");
        let message = |text: &str| sys::channel::Message { bytes: text.as_bytes().to_vec(), fds: Vec::new() };
        let read = read_notes(message(&lines.concat())).unwrap();
        assert_eq!(read.iter().map(ToString::to_string).collect::<Vec<_>>(), lines);
        for wrong in ["meter\tbr0\t1\t2\t3\t4\t5\t6", "group\tbr0\t1\tp1\t-\tff05::1\tIGMPv9", "groups"] {
            assert!(read_notes(message(wrong)).is_err(), "{wrong}");
        }
    }
}

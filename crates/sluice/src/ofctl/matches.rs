//! Commands that read matches in the wire forms of OpenFlow and write them again.

use std::fmt::Write as _;

use anyhow::{Context, Result, anyhow, bail};
use flow::fields::FieldId;
use flow::text::{NoPortNames, parse_match_unchecked};
use flow::{Match, VlanTag};
use openflow::text::{
    ExtensibleMatch, extensible_match, fixed_match, format_match_bytes, read_extensible_match,
};
use openflow::{ErrorKind, Version};

use super::flows::read_file;
use super::options::{self, Options};
use super::parse::hex;
use crate::remote::print;

/// Bytes of the fixed structures of OpenFlow 1.0 and 1.1.
const BYTES_10: usize = 40;
const BYTES_11: usize = 88;

/// Prints each line of the standard input as the version writes it. Comments stay.
fn rewrite(options: &Options, version: Version) -> Result<String> {
    for line in read_file("-")?.lines() {
        if line.starts_with('#') || line.is_empty() {
            print(&format!("{line}\n"));
            continue;
        }
        let entries = ExtensibleMatch::parse(line).map_err(anyhow::Error::msg)?;
        let text = match entries.rewritten(version, options.strict) {
            Ok(text) => text,
            Err(error) => format!("nx_pull_match() returned error {error}"),
        };
        print(&format!("{text}\n"));
    }
    Ok(String::new())
}

pub(super) fn parse_nxm(options: &Options, _: &[String]) -> Result<String> {
    rewrite(options, Version::V10)
}

pub(super) fn parse_oxm(options: &Options, args: &[String]) -> Result<String> {
    let version = options::version(&args[0]).ok().filter(|version| *version >= Version::V12);
    rewrite(options, version.with_context(|| format!("{}: not a valid version for OXM", args[0]))?)
}

/// Prints each fixed structure of the standard input, and the bytes that differ once it is written again.
fn fixed(version: Version, len: usize) -> Result<String> {
    for line in read_file("-")?.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let bytes = hex(line)?;
        if bytes.len() != len {
            bail!("Input is {} bytes, expected {len}", bytes.len());
        }
        let (matching, again) = match fixed_match(&bytes, version) {
            Ok(read) => read,
            Err(error) => {
                print(&format!("bad ofp1{}_match: {error}\n\n", version.0 - 1));
                continue;
            }
        };
        let mut out = format!("{}\n", flow::text::format_match(&matching, None));
        for (at, (before, after)) in bytes.iter().zip(&again).enumerate().filter(|(_, (a, b))| a != b) {
            let _infallible = writeln!(out, "{at:2}: {before:02x} -> {after:02x}");
        }
        print(&format!("{out}\n"));
    }
    Ok(String::new())
}

pub(super) fn parse_ofp10_match(_: &Options, _: &[String]) -> Result<String> {
    fixed(Version::V10, BYTES_10)
}

pub(super) fn parse_ofp11_match(_: &Options, _: &[String]) -> Result<String> {
    fixed(Version::V11, BYTES_11)
}

/// Tag and mask, of 16 bits each.
fn tci(m: &Match) -> String {
    let (value, mask) = m.get(FieldId::VlanTci);
    format!("{value:04x}/{mask:04x}")
}

/// A match on a tag through an extensible match: its text, and the match or its error.
fn through(m: &Match, version: Version) -> (String, Result<Box<Match>, ErrorKind>) {
    let bytes = extensible_match(m, version);
    (format_match_bytes(&bytes).unwrap_or_default(), read_extensible_match(&bytes, version))
}

/// The part of a fixed structure about the tag: number and priority, each with 1 if it is a wildcard.
fn fixed_tag(m: &Match, version: Version) -> Result<String> {
    let (bytes, back) = openflow::text::fixed_round_trip(m, version).map_err(|error| anyhow!("{error}"))?;
    // Offsets of wildcards, number and priority; bits of the wildcards.
    let (wild_at, tag_at, vid_bit, pcp_bit) =
        if version == Version::V10 { (0, 18, 1 << 1, 1 << 20) } else { (8, 36, 1 << 1, 1 << 2) };
    let wild =
        u32::from_be_bytes([bytes[wild_at], bytes[wild_at + 1], bytes[wild_at + 2], bytes[wild_at + 3]]);
    let vid = u16::from_be_bytes([bytes[tag_at], bytes[tag_at + 1]]);
    let bit = |bit: u32| u8::from(wild & bit != 0);
    Ok(format!("{vid:04x}/{},{:02x}/{} -> {}", bit(vid_bit), bytes[tag_at + 2], bit(pcp_bit), tci(&back)))
}

/// A match on a tag through all forms that it may have.
pub(super) fn check_vlan(_: &Options, args: &[String]) -> Result<String> {
    let number = |text: &String| {
        u16::from_str_radix(text.trim_start_matches("0x"), 16)
            .with_context(|| format!("{text}: not 16 bits in hexadecimal digits"))
    };
    let (value, mask) = (number(&args[0])?, number(&args[1])?);
    if value & !mask != 0 {
        bail!("{}: has bits outside the mask {}", args[0], args[1]);
    }
    let mut m = Match::catchall();
    m.set_masked(FieldId::VlanTci, value.into(), mask.into());
    if mask == 0 {
        m = Match::catchall();
    }
    let text = flow::text::format_match(&m, None);
    let mut out = format!("{text} -> {}\n", tci(&parse_match_unchecked(&text, &NoPortNames)?));
    let (text, back) = through(&m, Version::V10);
    out += &format!("NXM: {text} -> {}\n", back.map_or_else(|error| error.to_string(), |m| tci(&m)));
    let (text, back) = through(&m, Version::V12);
    let parts = |m: Box<Match>| {
        let (value, mask) = m.get(FieldId::VlanTci);
        let (value, mask) = (value as u16, mask as u16);
        let vid = VlanTag::VID | VlanTag::PRESENT;
        let pcp = if mask & VlanTag::PCP != 0 { format!("{:02x}", value >> 13) } else { "--".to_string() };
        format!("{:04x}/{:04x},{pcp}", value & vid, mask & vid)
    };
    out += &format!("OXM: {text} -> {}\n", back.map_or_else(|error| error.to_string(), parts));
    for version in [Version::V10, Version::V11] {
        out += &format!("OF1.{}: {}\n", version.0 - 1, fixed_tag(&m, version)?);
    }
    Ok(out)
}

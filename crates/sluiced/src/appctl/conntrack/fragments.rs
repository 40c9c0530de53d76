//! Reassembly of IP fragments for tracking (`dpctl/ipf-*`).

use super::super::datapath::datapath;
use super::super::{Form, Optional, Reply, Rows, Word, command};
use super::{invalid, number, unsupported};
use crate::control_plane::ControlPlane;
use dpif::{Connections, Fragments, IpFamily};
use std::fmt::Write as _;
use std::ops::ControlFlow;

/// The commands of this module.
pub(in crate::appctl) const ROWS: Rows = &[
    &command(
        "dpctl/ipf-get-status",
        Form("[-m] [dp]", 0, 2, asked),
        "show the reassembly of fragments, with -m also the waiting lists",
        show,
    ),
    &command(
        "dpctl/ipf-set-disabled",
        (Optional(Word("dp")), Word("v4|v6")),
        "stop the reassembly of IPv4 or IPv6 fragments",
        disable,
    ),
    &command(
        "dpctl/ipf-set-enabled",
        (Optional(Word("dp")), Word("v4|v6")),
        "reassemble IPv4 or IPv6 fragments for connection tracking",
        enable,
    ),
    &command(
        "dpctl/ipf-set-max-nfrags",
        (Optional(Word("dp")), Word("maxfrags")),
        "set the maximum number of waiting fragments",
        set_maximum,
    ),
    &command(
        "dpctl/ipf-set-min-frag",
        (Optional(Word("dp")), Word("v4|v6"), Word("minfragment")),
        "set the minimum size of fragments other than the last, in bytes",
        set_minimum,
    ),
];

type Text = Result<String, String>;
type Reassembly<'a> = Option<&'a dyn Fragments>;

/// Values out of range, as in the stock tool.
fn not_permitted(what: &str) -> String {
    format!("{what} (Operation not permitted)")
}

fn family(word: &str) -> Option<IpFamily> {
    match word {
        "v4" => Some(IpFamily::V4),
        "v6" => Some(IpFamily::V6),
        _ => None,
    }
}

fn enabled_set(fragments: Reassembly<'_>, word: &str, enabled: bool) -> Text {
    let family = family(word).ok_or_else(|| invalid("parameter missing: 'v4' for IPv4 or 'v6' for IPv6"))?;
    let doing = if enabled { "enabling" } else { "disabling" };
    let fragments =
        fragments.ok_or_else(|| unsupported(&format!("{doing} fragmentation reassembly failed")))?;
    fragments.set_enabled(family, enabled);
    Ok(format!("{doing} fragmentation reassembly successful"))
}

fn minimum_set(fragments: Reassembly<'_>, version: &str, bytes: &str) -> Text {
    let family = family(version).ok_or_else(|| invalid("parameter missing: v4 for IPv4 or v6 for IPv6"))?;
    let bytes = number(bytes).ok_or_else(|| invalid("parameter missing for minimum fragment size"))?;
    let fragments = fragments.ok_or_else(|| unsupported("setting minimum fragment size failed"))?;
    let why = "requested minimum fragment size too small; see documentation";
    fragments.set_min_bytes(family, bytes).map_err(|_| not_permitted(why))?;
    Ok("setting minimum fragment size successful".to_string())
}

fn maximum_set(fragments: Reassembly<'_>, word: &str) -> Text {
    let most = number(word).ok_or_else(|| invalid("parameter missing for maximum fragments"))?;
    let what = "setting maximum fragments failed";
    fragments.ok_or_else(|| unsupported(what))?.set_max(most).map_err(|_| not_permitted(what))?;
    Ok("setting maximum fragments successful".to_string())
}

fn shown(fragments: Reassembly<'_>, verbose: bool) -> Text {
    let fragments = fragments.ok_or_else(|| unsupported("ipf status could not be retrieved"))?;
    let mut out = fragments.status().to_string();
    if verbose {
        out += "\n        Fragment Lists:\n\n";
        fragments.lists(&mut |list| {
            // Writing to a string cannot fail.
            let _infallible = writeln!(out, "{list}");
            ControlFlow::Continue(())
        });
    }
    Ok(out)
}

/// Answers for the datapath of that name.
fn answer(plane: &ControlPlane, name: Option<&str>, text: impl FnOnce(Reassembly<'_>) -> Text) -> Reply {
    let instance = datapath(&plane.switch, name);
    instance.and_then(|i| text(i.datapath.connections().and_then(Connections::fragments))).into()
}

fn set_enabled(plane: &ControlPlane, (dp, word): (Option<&str>, &str), enabled: bool) -> Reply {
    answer(plane, dp, |fragments| enabled_set(fragments, word, enabled))
}

/// `[dp] v4|v6`
fn enable(plane: &mut ControlPlane, family: (Option<&str>, &str)) -> Reply {
    set_enabled(plane, family, true)
}

/// `[dp] v4|v6`
fn disable(plane: &mut ControlPlane, family: (Option<&str>, &str)) -> Reply {
    set_enabled(plane, family, false)
}

/// `[dp] v4|v6 minfragment`
fn set_minimum(plane: &mut ControlPlane, (dp, version, bytes): (Option<&str>, &str, &str)) -> Reply {
    answer(plane, dp, |fragments| minimum_set(fragments, version, bytes))
}

/// `[dp] maxfrags`
fn set_maximum(plane: &mut ControlPlane, (dp, word): (Option<&str>, &str)) -> Reply {
    answer(plane, dp, |fragments| maximum_set(fragments, word))
}

/// `[-m] [dp]`
fn asked(words: &[String]) -> Result<super::Words, String> {
    let asked = super::Words::parse(words, &["-m", "--more"])?.no_more()?;
    match asked.zone {
        None => Ok(asked),
        Some(_) => Err(invalid("fragments have no selection by zone")),
    }
}

fn show(plane: &mut ControlPlane, asked: super::Words) -> Reply {
    answer(plane, asked.datapath.as_deref(), |fragments| shown(fragments, asked.verbose))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracker::Scripted;
    use dpif::{CtAddresses, DpifError, FragmentList, FragmentState};

    /// Texts and errors of Open vSwitch 3.1.
    #[test]
    fn settings_are_set_and_shown() {
        let mut own = Scripted::default();
        let list = FragmentList {
            addresses: CtAddresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
            recirc_id: 3,
            ip_id: 40000,
            zone: 7,
            proto: 17,
            fragments: 2,
            state: FragmentState::FirstAndLast,
        };
        let addresses = CtAddresses::V6 { src: "fd00::1".parse().unwrap(), dst: "fd00::2".parse().unwrap() };
        own.lists = vec![list, FragmentList { addresses, state: FragmentState::Failed, ..list }];
        let fragments: Reassembly<'_> = Some(&own);
        let ok = |text: &str| Ok(text.to_string());
        assert_eq!(enabled_set(fragments, "v4", true), ok("enabling fragmentation reassembly successful"));
        assert_eq!(enabled_set(fragments, "v6", true), ok("enabling fragmentation reassembly successful"));
        assert_eq!(enabled_set(fragments, "v6", false), ok("disabling fragmentation reassembly successful"));
        assert_eq!(minimum_set(fragments, "v4", "500"), ok("setting minimum fragment size successful"));
        assert_eq!(minimum_set(fragments, "v6", "400"), ok("setting minimum fragment size successful"));
        assert_eq!(maximum_set(fragments, "5000"), ok("setting maximum fragments successful"));
        let counts = |version: &str, min: u32| {
            let names = ["accepted", "completed", "expired", "too small", "overlapped", "purged"];
            let rows: String = names.map(|n| format!("        {version} frags {n}: 0\n")).concat();
            format!("        min {version} frag size: {min}\n{rows}")
        };
        let head = "        Fragmentation Module Status\n        ---------------------------\n        v4 enabled: 1\n        v6 enabled: 0\n        max num frags (v4/v6): 5000\n        num frag: 0\n";
        let text = [head, &counts("v4", 500), &counts("v6", 400)].concat();
        assert_eq!(shown(fragments, false), Ok(text.clone()));
        let lists = "\n        Fragment Lists:\n\n\
            (src=10.0.0.1,dst=10.0.0.2,recirc_id=3,ip_id=40000,dl_type=0x800,zone=7,nw_proto=17,num_fragments=2,state=first/last frag)\n\
            (src=fd00::1,dst=fd00::2,recirc_id=3,ip_id=40000,dl_type=0x86dd,zone=7,nw_proto=17,num_fragments=2,state=reassemble fail)\n";
        assert_eq!(shown(fragments, true), Ok(text + lists));
    }

    #[test]
    fn faults_are_those_of_the_stock_tool() {
        let own = Scripted::default();
        let (fragments, none): (Reassembly<'_>, Reassembly<'_>) = (Some(&own), None);
        own.fail("set m", DpifError::Unsupported("out of range".to_string()));
        for (text, why) in [
            (
                enabled_set(fragments, "v5", true),
                "parameter missing: 'v4' for IPv4 or 'v6' for IPv6 (Invalid argument)",
            ),
            (
                minimum_set(fragments, "v7", "500"),
                "parameter missing: v4 for IPv4 or v6 for IPv6 (Invalid argument)",
            ),
            (
                minimum_set(fragments, "v4", "x"),
                "parameter missing for minimum fragment size (Invalid argument)",
            ),
            (
                minimum_set(fragments, "v4", "100"),
                "requested minimum fragment size too small; see documentation (Operation not permitted)",
            ),
            (maximum_set(fragments, "x"), "parameter missing for maximum fragments (Invalid argument)"),
            (maximum_set(fragments, "5001"), "setting maximum fragments failed (Operation not permitted)"),
            (
                enabled_set(none, "v4", true),
                "enabling fragmentation reassembly failed (Operation not supported)",
            ),
            (
                enabled_set(none, "v4", false),
                "disabling fragmentation reassembly failed (Operation not supported)",
            ),
            (
                minimum_set(none, "v4", "500"),
                "setting minimum fragment size failed (Operation not supported)",
            ),
            (maximum_set(none, "5"), "setting maximum fragments failed (Operation not supported)"),
            (shown(none, true), "ipf status could not be retrieved (Operation not supported)"),
        ] {
            assert_eq!(text, Err(why.to_string()));
        }
    }
}

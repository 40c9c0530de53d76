//! The text of actions: pairs observed with OVS 3.1 if we agree with it (`*.tsv`; each head lists omissions), and
//! our own decisions.

use crate::fuzz;
use crate::text::{format_actions, parse_actions};
use flow::OfPort;
use flow::text::{NoPortNames, PortNames};

/// Lines of a table: input and expected output.
fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table.lines().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_once('\t'))
}

/// Compares all rows and shows all differences.
pub(super) fn check(table: &str, least: usize, got: impl Fn(&str) -> String) {
    let mut wrong = String::new();
    let mut count = 0;
    for (input, want) in rows(table) {
        count += 1;
        let got = got(input);
        if got != want {
            wrong += &format!("\n{input}\n  want {want}\n  got  {got}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= least, "only {count} rows");
}

fn acted(text: &str) -> String {
    match parse_actions(text, &NoPortNames) {
        Ok(a) => format_actions(&a, &NoPortNames),
        Err(e) => format!("error: {}", e.message),
    }
}

#[test]
fn actions_print_as_ovs_prints_them() {
    check(include_str!("actions.tsv"), 200, acted);
}

#[test]
fn bad_actions_are_refused_in_ovs_words() {
    check(include_str!("action_errors.tsv"), 100, |t| acted(t).replacen("error: ", "", 1));
}

struct Names;

impl PortNames for Names {
    fn name(&self, port: OfPort) -> Option<&str> {
        [(1, "eth0"), (2, "a \"b\""), (3, "local"), (4, "7up"), (5, "br-int"), (6, "a,b:1")]
            .iter()
            .find(|(n, _)| *n == port.0)
            .map(|(_, s)| *s)
    }

    fn number(&self, name: &str) -> Option<OfPort> {
        (1..7).map(OfPort).find(|p| self.name(*p) == Some(name))
    }
}

#[test]
fn port_names_are_printed_and_parsed() {
    let actions = "output:eth0,output:\"local\",enqueue:eth0:3,resubmit(eth0,2),resubmit:\"7up\",\
         enqueue:\"a,b:1\":2,resubmit(\"a,b:1\",2)";
    let parsed = parse_actions(actions, &Names).unwrap();
    assert_eq!(
        format_actions(&parsed, &NoPortNames),
        "output:1,output:3,enqueue:1:3,resubmit(1,2),resubmit:4,enqueue:6:2,resubmit(6,2)"
    );
    assert_eq!(format_actions(&parsed, &Names), actions);
    assert_eq!(parse_actions("eth0,\"a \\\"b\\\"\"", &Names).unwrap().len(), 2);
}

#[test]
fn errors_say_where() {
    let error = parse_actions("output:1,load:9->reg0[0..2]", &NoPortNames).unwrap_err();
    assert_eq!(error.to_string(), "9->reg0[0..2]: value 0x9 does not fit into 3 bits");
}

#[test]
fn actions_are_taken_literally() {
    let table = "\
set_field:0x5/0x3->reg0\tset_field:0x1/0x3->reg0
set_field:10.0.0.1/24->nw_src\tset_field:10.0.0.0/24->ip_src
set_field:LOCAL->in_port\tset_field:LOCAL->in_port
set_field:4->nw_tos\tset_field:4->nw_tos
set_field:5->vlan_vid\terror: 5: invalid value for set field vlan_vid, the tag's presence bit is missing: 4101
set_field:1->dl_vlan\terror: dl_vlan cannot be set, because it has no NXM or OXM header
load:10.0.0.1->reg1[]\terror: 10.0.0.1->reg1[]: cannot parse integer value
load:0x1->xxreg0[32..127]\tload:0x1->NXM_NX_XXREG0[32..95],load:0->NXM_NX_XXREG0[96..127]
load:0x1->NXOXM_ET_REG16[0..15]\tload:0x1->NXOXM_ET_REG16[0..15]
move:reg31[]->xreg15[0..31]\tmove:NXOXM_ET_REG31[]->OXM_OF_PKT_REG15[0..31]
set_field:5->xxreg4\tset_field:0x5->xxreg4
output:xxreg0[]\terror: xxreg0[]: port number from more than 64 bits
output:65280\terror: 65280: output to a port that is none
ANY\terror: ANY: output to a port that is none
1:2\terror: unexpected argument of output to port 1
set_queue:4294967296\terror: 4294967296: value does not fit into 32 bits
dec_ttl(x)\terror: invalid controller id \"x\"
dec_ttl(70000)\terror: invalid controller id \"70000\"
resubmit(,3\terror: missing closing parenthesis
output:2)\terror: 2): output to unknown port
learn(table=1,priority=70000)\terror: invalid priority \"70000\"
learn(table=1,foo)\terror: unknown keyword foo
learn(table=1,dl_vlan=5)\terror: field 'dl_vlan' cannot stand in learn: it has no NXM or OXM header
learn(table=1,reg0[0..7]=reg1[])\terror: bit widths of reg0[0..7] (8) and reg1[] (32) differ
learn(table=1,ct_state=0x20)\tlearn(table=1,ct_state=trk)
mod_vlan_vid:5,mod_nw_ecn:2,mod_nw_ttl:5\tmod_vlan_vid:5,mod_nw_ecn:2,mod_nw_ttl:5
debug_recirc,debug_slow\tdebug_recirc,debug_slow
fin_timeout(idle=5)\terror: invalid key 'idle' in 'fin_timeout' argument
set_mpls_label\terror: set_mpls_label: expected label.
set_mpls_tc\terror: set_mpls_tc: expected tc.
set_mpls_ttl\terror: set_mpls_ttl: expected ttl.
set_mpls_label:9999999\terror: 9999999: not a valid MPLS label
set_mpls_tc:9\terror: 9: not a valid MPLS TC
set_mpls_tc:x\terror: invalid MPLS TC \"x\"
set_mpls_ttl:300\terror: invalid MPLS TTL \"300\"
push_mpls\terror: invalid push_mpls \"\"
push_mpls:0x18847\terror: invalid push_mpls \"0x18847\"
push_mpls:0x800\terror: 0x800: not a valid MPLS ethertype
pop_mpls:abc\terror: invalid pop_mpls \"abc\"
fin_timeout:5\terror: invalid key '5' in 'fin_timeout' argument
fin_timeout(idle_timeout=70000)\terror: invalid idle_timeout \"70000\"
fin_timeout(idle_timeout)\terror: invalid idle_timeout \"\"
write_actions(fin_timeout(idle_timeout=1))\terror: write_actions action doesn't support nested action fin_timeout
";
    check(table, 40, acted);
}

#[test]
fn unsupported_actions_are_named() {
    let unroll = "unroll_xlate(table=0, cookie=0x0)";
    assert_eq!(acted(unroll), "error: action unroll_xlate is not supported");
    let beside = "error: conjunction actions may be used along with note only, not with";
    assert_eq!(acted("conjunction(1,1/2),output:1"), format!("{beside} output"));
    assert_eq!(acted("conjunction(1,1/2),goto_table:4"), format!("{beside} goto_table"));
    assert_eq!(acted("output(1)->reg0[0]"), "error: unknown action output");
    assert_eq!(acted("frobnicate:1"), "error: unknown action frobnicate");
}

#[test]
fn the_corpus_is_replayed() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    testkit::replay_corpus(format!("{corpus}/text_parse_actions"), fuzz::parse_actions);
    testkit::replay_corpus(format!("{corpus}/flow_mods"), fuzz::parse_flow_mods);
}

#[test]
fn text_nests_to_the_bound_of_ovs() {
    let nested = |n: usize| "clone(".repeat(n) + "output:1" + &")".repeat(n);
    assert_eq!(acted(&nested(99)), nested(99));
    assert_eq!(acted(&nested(100)), "error: Action nested too deeply");
}

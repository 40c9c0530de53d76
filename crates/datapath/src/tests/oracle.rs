//! Equivalence with the oracle: cache, ranked subtables and batches give the result of a scan of the flow list.

use super::frames::{ipv4, ipv6, l4};
use super::*;
use proptest::prelude::*;

/// A flow of the oracle.
#[derive(Clone)]
struct Plain {
    ufid: Ufid,
    key: FlowKey,
    mask: KeyMask,
    port: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Put { frame: usize, mask: u8, port: u32 },
    Delete(usize),
    Modify(usize, u32),
    Receive(Vec<usize>),
    Tick,
}

fn universe() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for n in 0..24u8 {
        let ports = l4(if n % 2 == 0 { 6 } else { 17 }, (n % 3).into(), (n % 5).into(), false);
        let proto = if n % 2 == 0 { 6 } else { 17 };
        all.push(ipv4(proto, [10, 0, n % 4, n], [10, 1, 0, n % 2], 0, &ports));
        let mut six = ipv6(17, &l4(17, (n % 3).into(), (n % 2).into(), true));
        six[37] = n;
        all.push(six);
    }
    all
}

fn mask_of(n: u8) -> KeyMask {
    let mut m = least_mask();
    m.base.nw_src = if n & 1 != 0 { 0xffff_ff00 } else { 0 };
    m.base.tp_dst = if n & 2 != 0 { 0xffff } else { 0 };
    m.base.tp_src = if n & 4 != 0 { 0xffff } else { 0 };
    m.base.nw_proto = if n & 8 != 0 { 0xff } else { 0 };
    m.ipv6.src = [if n & 16 != 0 { 0xff } else { 0 }; 16];
    m
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..48usize, 0..32u8, 2..5u32).prop_map(|(frame, mask, port)| Step::Put { frame, mask, port }),
        1 => any::<usize>().prop_map(Step::Delete),
        1 => (any::<usize>(), 2..5u32).prop_map(|(n, port)| Step::Modify(n, port)),
        6 => prop::collection::vec(0..48usize, 1..70).prop_map(Step::Receive),
        1 => Just(Step::Tick),
    ]
}

fn matching<'a>(flows: &'a [Plain], key: &'a FlowKey) -> impl Iterator<Item = &'a Plain> {
    flows.iter().filter(move |f| f.key.masked(&f.mask).matches(&f.mask, key))
}

/// Whether some packet could match both.
fn overlap(a: &Plain, key: &FlowKey, mask: &KeyMask) -> bool {
    a.key.base.shape == key.base.shape
        && key.present_blocks().all(|i| {
            let both = |w: usize| a.mask.block(i)[w] & mask.block(i)[w];
            (0..8).all(|w| (a.key.block(i)[w] ^ key.block(i)[w]) & both(w) == 0)
        })
}

/// The enabled optimisations.
#[derive(Clone, Copy, Debug)]
struct Variant {
    insert_inv_prob: u32,
    vector: bool,
    template: bool,
    rank: bool,
}

fn variant() -> impl Strategy<Value = Variant> {
    (0..3u32, prop::array::uniform3(any::<bool>())).prop_map(|(insert_inv_prob, [vector, template, rank])| {
        Variant { insert_inv_prob, vector, template, rank }
    })
}

fn run(steps: Vec<Step>, variant: Variant) {
    let frames = universe();
    let mut rig = Rig::with(|c| {
        c.vector = variant.vector;
        c.template = variant.template;
        c.tuning.cache_insert_inv_prob = variant.insert_inv_prob;
        c.tuning.rank = variant.rank;
    });
    let mut flows: Vec<Plain> = Vec::new();
    for step in steps {
        match step {
            Step::Put { frame, mask, port } => {
                let (key, mask) = (key_of(1, &frames[frame]), mask_of(mask));
                if flows.iter().any(|f| overlap(f, &key, &mask)) {
                    continue;
                }
                let (ufid, result) = rig.put(key, mask, vec![out(port)]);
                assert!(matches!(result, OpResult::Done), "{result:?}");
                flows.push(Plain { ufid, key, mask, port });
            }
            Step::Delete(n) if !flows.is_empty() => {
                let gone = flows.swap_remove(n % flows.len());
                let result = rig.apply(DpifOp::FlowDel(gone.ufid));
                assert!(matches!(result, OpResult::Flow(f) if f.key == gone.key));
            }
            Step::Modify(n, port) if !flows.is_empty() => {
                let at = n % flows.len();
                flows[at].port = port;
                let Plain { ufid, key, mask, .. } = flows[at];
                let actions = vec![out(port)].into();
                let put = FlowPut { ufid, key, mask, actions, mode: PutMode::Modify };
                assert!(matches!(rig.apply(DpifOp::FlowPut(Box::new(put))), OpResult::Done));
            }
            Step::Delete(_) | Step::Modify(..) => {}
            Step::Receive(which) => receive(&mut rig, &frames, &flows, &which),
            Step::Tick => rig.pmd.tick(rig.now_us),
        }
    }
}

fn receive(rig: &mut Rig, frames: &[Vec<u8>], flows: &[Plain], which: &[usize]) {
    let batch: Vec<Vec<u8>> = which.iter().map(|n| frames[*n].clone()).collect();
    rig.receive(1, &batch);
    let (mut sent, mut missed) = (Vec::new(), Vec::new());
    for frame in &batch {
        let key = key_of(1, frame);
        match matching(flows, &key).next() {
            Some(f) => sent.push((f.port, frame.clone())),
            None if missed.contains(&key) => {}
            None => missed.push(key),
        }
    }
    sent.sort_by_key(|(port, _)| *port);
    let mut real = rig.sent();
    real.sort_by_key(|(port, _)| *port);
    assert_eq!(real, sent);
    let upcalls: Vec<Upcall> = std::mem::take(&mut rig.io.upcalls);
    assert_eq!(upcalls.iter().map(|u| u.key).collect::<Vec<_>>(), missed);
    // Replied to by dropping, so that the next burst starts without open tickets; parked packets are upcalled once
    // more.
    for upcall in upcalls {
        rig.execute(upcall.packet, upcall.key, vec![], upcall.ticket);
    }
    rig.io.upcalls.clear();
    assert_eq!(rig.pmd.open_tickets(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn lookup_is_a_scan_of_the_flow_list(steps in prop::collection::vec(step(), 1..60), variant in variant()) {
        run(steps, variant);
    }
}

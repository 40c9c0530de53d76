//! Tests of splitting a handler's batches.

use super::*;
use dpif::testing::{SLOW, upcall};
use flow::DpPort;

/// A batch of misses (`m`) and packets sent up by actions (`a`), capital letters for those of another port, as sizes
/// of parts with their priority.
fn cut(kinds: &str, ahead: usize, at_once: usize) -> Vec<(usize, bool)> {
    let upcalls = kinds.chars().map(|c| {
        let kind = if c.eq_ignore_ascii_case(&'m') { UpcallKind::Miss } else { SLOW };
        upcall(DpPort(c.is_uppercase().into()), 1, kind, PmdId::Core(0))
    });
    parts(upcalls.collect(), ahead, at_once).map(|(part, ahead)| (part.len(), ahead)).collect()
}

#[test]
fn first_packets_of_ports_that_ask_for_little_go_ahead() {
    assert_eq!(cut("", 0, 4), []);
    assert_eq!(cut("mmMMmmMMm", 0, 4), [(4, false), (4, false), (1, false)]);
    assert_eq!(cut("MMMmmmmmm", 3, 4), [(3, true), (4, false), (2, false)]);
    assert_eq!(cut("MMMMMmmmm", 5, 4), [(4, true), (1, true), (4, false)]);
    assert_eq!(cut("Mm", 2, 64), [(2, true)]);
    // Packets sent up by an action have normal priority, and those after them.
    assert_eq!(cut("Mammm", 4, 4), [(1, true), (4, false)]);
    assert_eq!(cut("aMm", 3, 64), [(3, false)]);
    // If no other port waits, parts would only cost.
    assert_eq!(cut("mmmmmmmmm", 0, 4), [(9, false)]);
    assert_eq!(cut("mmmmmmmmm", 2, 4), [(2, true), (7, false)]);
    assert_eq!(cut("m", 1, 4), [(1, true)]);
}

//! Checks of the row of TCP across an overlay.

use crate::overlay::{Drops, Passed};
use crate::pmdstats::Count;
use crate::rows::tunnel::fault;

#[test]
fn tunnels_count_at_least_the_bytes_of_the_stream() {
    let passed = |sent, received| Passed {
        sent: Count { packets: 1, bytes: sent },
        received: Count { packets: 1, bytes: received },
        drops: Drops { full_rings: 0, others: 0 },
    };
    // Sent and received after 1000 bytes each; bytes of the stream; whether that is a fault.
    for (sent, received, bytes, wrong) in [
        (3100, 3050, 2000, false),
        (3000, 3000, 2000, false),
        (2999, 3050, 2000, true),
        (3100, 2999, 2000, true),
        (1000, 1000, 1, true),
    ] {
        let got = fault(&passed(1000, 1000), &passed(sent, received), bytes);
        assert_eq!(got.is_some(), wrong, "{sent} {received} {bytes}: {got:?}");
    }
}

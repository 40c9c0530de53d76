//! Modes of AF_XDP; ports are tested as part of a switch.

use super::*;

#[test]
fn modes_keep_their_names() {
    for mode in XdpMode::ALL {
        assert_eq!(xdp_mode(mode).to_string(), mode.name());
    }
}

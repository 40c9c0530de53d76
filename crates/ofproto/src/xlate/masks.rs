//! The mask of a translation: its first bits, and those that a datapath's flow lacks.

use flow::{Flow, Mask, Nsh, Registers, VlanTag, nw_frag};
use packet::headers::{self as h, is_mpls};

/// The mask of fields examined by every translation.
pub(super) fn always_looked_at(flow: &Flow) -> Mask {
    let mut wc = Mask::none();
    wc.0.recirc_id = u32::MAX;
    wc.0.in_port = u32::MAX;
    wc.0.packet_type = u32::MAX;
    wc.0.dl_type = u16::MAX;
    if flow.is_ip() {
        wc.0.nw_frag = nw_frag::MASK;
    }
    crate::tunnel::look_at(flow, &mut wc);
    wc
}

/// Removes from the mask fields that packets like `flow` lack or the datapath does not support.
pub(super) fn tidy_mask(wc: &mut Mask, flow: &Flow) {
    let m = &mut wc.0;
    m.metadata = 0;
    m.regs = Registers::default();
    m.conj_id = 0;
    m.actset_output = 0;
    if !is_mpls(flow.dl_type) {
        // They belong to labels pushed since.
        m.mpls_lse = [0; 4];
    }
    if !flow.is_nsh() {
        // They belong to headers pushed since.
        m.set_nsh(&Nsh::default());
    } else if flow.nsh_mdtype != h::NSH_MD_TYPE1 {
        m.nsh_context = [0; 4];
    }
    if !flow.tunnel().is_some() {
        wc.0.clear_tunnel();
    }
    let m = &mut wc.0;
    if flow.packet_type != 0 {
        // They belong to an Ethernet header pushed since.
        (m.dl_src, m.dl_dst, m.vlans) = ([0; 6], [0; 6], [VlanTag::default(); 2]);
    }
    let icmp = flow.dl_type == h::ETH_TYPE_IP && matches!(flow.nw_proto, h::IPPROTO_ICMP | h::IPPROTO_IGMP)
        || flow.dl_type == h::ETH_TYPE_IPV6 && flow.nw_proto == h::IPPROTO_ICMPV6;
    if icmp {
        m.tp_src &= 0xff;
        m.tp_dst &= 0xff;
    }
    if flow.is_ip() && flow.nw_frag & nw_frag::LATER != 0 {
        (m.tp_src, m.tp_dst) = (0, 0);
    }
    for tag in &mut m.vlans {
        if tag.tci != 0 {
            tag.tci |= VlanTag::PRESENT;
            // Tags are compared and moved whole, and datapaths identify a tag by its EtherType.
            tag.tpid = u16::MAX;
        }
    }
}

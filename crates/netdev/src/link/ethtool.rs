//! Driver information of a device: speed, duplex, link modes, driver name (`linux/ethtool.h`, by ioctl).
//!
//! Devices without it return `EOPNOTSUPP`.

use std::io;
use std::os::fd::OwnedFd;

use crate::raw::{self, context};

const GLINKSETTINGS: u32 = 0x4c;
const GDRVINFO: u32 = 0x03;
/// Fixed part of `ethtool_link_settings`.
const SETTINGS_BYTES: usize = 48;
const MASK_WORDS_AT: usize = 15;
const MAX_MASK_WORDS: usize = 127;
const DRVINFO_BYTES: usize = 196;
const GCHANNELS: u32 = 0x3c;
const GFLAGS: u32 = 0x25;
const FLAG_RXVLAN: u32 = 1 << 8;
const GLINK: u32 = 0x0a;

/// Duplex of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duplex {
    /// One direction at a time.
    Half,
    /// Both.
    Full,
}

/// The driver's state of the link. The masks have bit n set for link mode n of
/// `ethtool_link_mode_bit_indices`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EthtoolLink {
    /// Speed in Mb/s, if known.
    pub speed_mbps: Option<u32>,
    /// Duplex, if known.
    pub duplex: Option<Duplex>,
    /// Whether autonegotiation is on.
    pub autoneg: bool,
    /// Connector (`PORT_TP` 0, `PORT_FIBRE` 3, …).
    pub connector: u8,
    /// Link modes that the device can do.
    pub supported: u128,
    /// Link modes that it offers.
    pub advertised: u128,
    /// Link modes advertised by the peer.
    pub peer: u128,
}

/// Link settings of a device.
pub fn ethtool_link(name: &str) -> io::Result<EthtoolLink> {
    let failed = || context(format!("device {name}: link settings"));
    let mut buf = [0u32; (SETTINGS_BYTES / 4) + 3 * MAX_MASK_WORDS];
    buf[0] = GLINKSETTINGS;
    // The first call returns the length of the masks, as a negative number.
    ioctl(name, &mut buf).map_err(failed())?;
    let words = byte(&buf, MASK_WORDS_AT) as i8;
    let wanted = usize::from(words.unsigned_abs());
    if words >= 0 || wanted > MAX_MASK_WORDS {
        let what = format!("device {name}: the kernel returned invalid link settings");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    buf.fill(0);
    buf[0] = GLINKSETTINGS;
    let mut word = buf[MASK_WORDS_AT / 4].to_ne_bytes();
    word[MASK_WORDS_AT % 4] = wanted as u8;
    buf[MASK_WORDS_AT / 4] = u32::from_ne_bytes(word);
    ioctl(name, &mut buf).map_err(failed())?;
    let mask = |i: usize| {
        let words = &buf[SETTINGS_BYTES / 4 + i * wanted..][..wanted];
        words.iter().take(4).enumerate().fold(0u128, |m, (n, w)| m | u128::from(*w) << (32 * n))
    };
    Ok(EthtoolLink {
        speed_mbps: (buf[1] != 0 && buf[1] != u32::MAX).then_some(buf[1]),
        duplex: match byte(&buf, 8) {
            0 => Some(Duplex::Half),
            1 => Some(Duplex::Full),
            _ => None,
        },
        connector: byte(&buf, 9),
        autoneg: byte(&buf, 11) == 1,
        supported: mask(0),
        advertised: mask(1),
        peer: mask(2),
    })
}

/// Name and version of a device's driver, and the version of its firmware.
pub fn driver(name: &str) -> io::Result<[String; 3]> {
    let mut buf = [0u32; DRVINFO_BYTES / 4];
    buf[0] = GDRVINFO;
    ioctl(name, &mut buf).map_err(context(format!("device {name}: driver")))?;
    let text = |at: usize| {
        let bytes: Vec<u8> = (at..at + 32).map(|i| byte(&buf, i)).take_while(|b| *b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok([text(4), text(36), text(68)])
}

/// Receive queues in use by a device.
pub fn rx_queues(name: &str) -> io::Result<u32> {
    // Command; the maximum of each kind (receiving, sending, other, both); the numbers in use.
    let mut buf = [0u32; 9];
    buf[0] = GCHANNELS;
    ioctl(name, &mut buf).map_err(context(format!("device {name}: queues")))?;
    Ok(buf[5].saturating_add(buf[8]))
}

/// Whether a device strips VLAN tags from received frames.
pub fn strips_vlan_tags(name: &str) -> io::Result<bool> {
    // Command; flags.
    let mut buf = [GFLAGS, 0];
    ioctl(name, &mut buf).map_err(context(format!("device {name}: flags")))?;
    Ok(buf[1] & FLAG_RXVLAN != 0)
}

/// Reads carriers of devices as their drivers know them.
///
/// The kernel's link events and `IFF_RUNNING` follow a lost carrier by up to a second: it reports one a second for the whole
/// machine (`net/core/link_watch.c`). The answer of the driver has no delay.
#[derive(Debug)]
pub struct CarrierReader {
    socket: OwnedFd,
}

impl CarrierReader {
    /// A reader of devices in the network namespace of the calling thread.
    ///
    /// # Errors
    /// No socket is left.
    pub fn new() -> io::Result<CarrierReader> {
        Ok(CarrierReader { socket: raw::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)? })
    }

    /// Whether the device is up and has a carrier.
    ///
    /// # Errors
    /// `ENODEV` without such a device, `EOPNOTSUPP` if its driver does not know.
    pub fn carrier(&self, name: &str) -> io::Result<bool> {
        // Command; carrier.
        let mut buf = [GLINK, 0];
        ioctl_at(&self.socket, name, &mut buf)?;
        Ok(buf[1] != 0)
    }
}

fn byte(words: &[u32], at: usize) -> u8 {
    words[at / 4].to_ne_bytes()[at % 4]
}

/// SIOCETHTOOL with a command's structure in `buf`, which must have room for the longest result of the
/// command.
fn ioctl(name: &str, buf: &mut [u32]) -> io::Result<()> {
    ioctl_at(&raw::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?, name, buf)
}

/// [`ioctl`] at an open socket.
fn ioctl_at(socket: &OwnedFd, name: &str, buf: &mut [u32]) -> io::Result<()> {
    let mut req = raw::ifreq(name)?;
    req.ifr_ifru.ifru_data = buf.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL takes an ifreq whose data point to the command. The commands used here write at
    // most the space reserved by the callers above: the fixed part and three masks of the given length,
    // ethtool_drvinfo, ethtool_channels or ethtool_value.
    unsafe { raw::ioctl_ifreq(socket, libc::SIOCETHTOOL, &mut req) }
}

//! Limits the depth of processor idle states (the kernel's "PM quality of service" for processor wake-up
//! latency).

use std::fs::File;
use std::io::{self, Write};

/// Accepts a request while open: 4 bytes, µs, in host byte order.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// Names the idle driver.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The idle driver of virtual machines: its one state but polling gives the processor back to the hypervisor.
const GUEST_DRIVER: &str = "haltpoll";
/// Idle states with a shorter exit latency cost little power: C1 and C1E, not C6.
const SHALLOW_US: i32 = 10;

/// While it lives, idle processors of this machine stay in states with an exit latency of microseconds:
/// shallow ones on bare metal; in a virtual machine, where halting deschedules the processor, they poll. The
/// request ends with the value, and with the process however that ends.
#[derive(Debug)]
pub struct ShallowIdle(#[expect(dead_code, reason = "holds the wish by being open")] File);

impl ShallowIdle {
    /// Begins.
    ///
    /// # Errors
    /// The device does not exist or is not permitted (it is root's).
    pub fn begin() -> io::Result<ShallowIdle> {
        let guest = std::fs::read_to_string(DRIVER).is_ok_and(|driver| driver.trim() == GUEST_DRIVER);
        let wish: i32 = if guest { 0 } else { SHALLOW_US };
        let wished = || {
            let mut file = File::options().write(true).open(DEVICE)?;
            file.write_all(&wish.to_ne_bytes())?;
            Ok(file)
        };
        wished().map(ShallowIdle).map_err(|e: io::Error| io::Error::new(e.kind(), format!("{DEVICE}: {e}")))
    }
}

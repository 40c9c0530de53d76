//! How deep the machine's processors may sleep (the kernel's "PM quality of service" for processor wake-up latency).

use std::fs::File;
use std::io::{self, Write};

/// Takes a wish while it is open: 4 bytes, µs, in the processor's order.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// Names who chooses idle states.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The idle driver of virtual machines: its one state but spinning gives the processor back to the hypervisor.
const GUEST_DRIVER: &str = "haltpoll";
/// Idle states that take no longer to leave than this cost little power: C1 and C1E, not C6.
const SHALLOW_US: i32 = 10;

/// While it lives, idle processors of this machine stay in states that they leave within microseconds: shallow ones on
/// bare metal; in a virtual machine, where halting means to be scheduled away, they spin. The wish ends with the value,
/// and with the process however that ends.
#[derive(Debug)]
pub struct ShallowIdle(#[expect(dead_code, reason = "holds the wish by being open")] File);

impl ShallowIdle {
    /// Begins.
    ///
    /// # Errors
    /// The device is not there or may not be opened (it is root's).
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

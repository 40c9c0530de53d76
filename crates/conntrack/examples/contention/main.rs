//! Cache line transfers and locked operations of the tracker for each packet, on 1 to 16 simulated cores.
//!
//! `RUSTFLAGS="--cfg sluice_contention" cargo run --release -p conntrack --example contention --target-dir
//! target/contention`. The cores take bursts in turn on one thread (`sync::contention`), so the counts are exact and do not
//! depend on the machine. It fails if established packets share a written line.

#[cfg(sluice_contention)]
mod cores;

fn main() {
    #[cfg(sluice_contention)]
    cores::run();
    #[cfg(not(sluice_contention))]
    eprintln!("build it with RUSTFLAGS=\"--cfg sluice_contention\"");
}

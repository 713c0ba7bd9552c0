//! Links the program at a fixed address where that is known to work.
//!
//! A program that can be loaded anywhere has some 18,000 pointers to adjust in every process before it can start; a hook
//! runs this one hundreds of times.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}

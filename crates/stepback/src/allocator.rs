//! Which allocator a process uses: a server another one than a command.
//!
//! In a server, what one thread made another takes apart, thousands of times a second. With jemalloc it takes in about a
//! tenth more steps than with the system's allocator, in less memory. A hook or a command lives for milliseconds, of which jemalloc
//! would take a part to spread over pages that are never filled. So it is decided once, before anything is allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use tikv_jemallocator::Jemalloc;

/// The commands that stay.
const SERVERS: [&CStr; 2] = [c"serve", c"studio"];

/// Whether this process stays. Never changed once something is allocated.
static STAYS: AtomicBool = AtomicBool::new(false);

struct Chosen;

#[global_allocator]
static ALLOCATOR: Chosen = Chosen;

// SAFETY: each of the two keeps the promises of an allocator, and all calls of a process go to the same one.
unsafe impl GlobalAlloc for Chosen {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what the caller promises is what is needed.
        unsafe { if STAYS.load(Ordering::Relaxed) { Jemalloc.alloc(layout) } else { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if STAYS.load(Ordering::Relaxed) {
                Jemalloc.alloc_zeroed(layout)
            } else {
                System.alloc_zeroed(layout)
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the block came from the same allocator.
        unsafe {
            if STAYS.load(Ordering::Relaxed) {
                Jemalloc.dealloc(block, layout);
            } else {
                System.dealloc(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above; the block came from the same allocator.
        unsafe {
            if STAYS.load(Ordering::Relaxed) {
                Jemalloc.realloc(block, layout, new_size)
            } else {
                System.realloc(block, layout, new_size)
            }
        }
    }
}

/// Called by the loader of glibc, with the arguments of the program, before anything of Rust runs. A word that only looks like
/// one of these commands does no harm.
extern "C" fn choose(count: c_int, words: *const *const c_char, _: *const *const c_char) {
    for at in 1..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the loader gives as many words as it says, each of them ended by a zero.
        let word = unsafe { CStr::from_ptr(*words.add(at)) };
        if SERVERS.contains(&word) {
            STAYS.store(true, Ordering::Relaxed);
        }
    }
}

/// Other loaders call what stands here without arguments; there, the system's allocator is used.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[used]
// SAFETY: the section is a list of such functions, and this one touches nothing that is not set up yet.
#[unsafe(link_section = ".init_array")]
static CHOOSE: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = choose;

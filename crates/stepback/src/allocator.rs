//! Chooses the allocator of a process: jemalloc for servers, the system's allocator for everything else.
//!
//! In a server, memory that one thread allocates is freed by another, thousands of times a second. With jemalloc the
//! server takes in about a tenth more steps than with the system's allocator, and uses less memory. A hook or a command
//! lives for milliseconds, and jemalloc would spend part of them on setting up pages that are never filled. The choice is
//! made once, before anything is allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use tikv_jemallocator::Jemalloc;

/// The commands that run as a server.
const SERVERS: [&CStr; 2] = [c"serve", c"studio"];

/// Whether this process is a server. Never changes after the first allocation.
static IS_SERVER: AtomicBool = AtomicBool::new(false);

struct SelectedAllocator;

#[global_allocator]
static ALLOCATOR: SelectedAllocator = SelectedAllocator;

// SAFETY: both allocators fulfil the contract of `GlobalAlloc`, and all calls of a process go to the same one.
unsafe impl GlobalAlloc for SelectedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantees are exactly the ones the inner allocator needs.
        unsafe {
            if IS_SERVER.load(Ordering::Relaxed) { Jemalloc.alloc(layout) } else { System.alloc(layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if IS_SERVER.load(Ordering::Relaxed) {
                Jemalloc.alloc_zeroed(layout)
            } else {
                System.alloc_zeroed(layout)
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; the block came from the same allocator.
        unsafe {
            if IS_SERVER.load(Ordering::Relaxed) {
                Jemalloc.dealloc(block, layout);
            } else {
                System.dealloc(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above; the block came from the same allocator.
        unsafe {
            if IS_SERVER.load(Ordering::Relaxed) {
                Jemalloc.realloc(block, layout, new_size)
            } else {
                System.realloc(block, layout, new_size)
            }
        }
    }
}

/// Called by glibc's loader with the program's arguments, before any Rust code runs. An argument that only looks like one
/// of these commands does no harm.
extern "C" fn select_allocator(count: c_int, words: *const *const c_char, _: *const *const c_char) {
    for at in 1..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the loader passes `count` arguments, each of them zero-terminated.
        let word = unsafe { CStr::from_ptr(*words.add(at)) };
        if SERVERS.contains(&word) {
            IS_SERVER.store(true, Ordering::Relaxed);
        }
    }
}

/// Other loaders call the functions in this section without arguments; there, the system's allocator is used.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[used]
// SAFETY: the section is a list of such functions, and this one uses nothing that is not initialized yet.
#[unsafe(link_section = ".init_array")]
static SELECT_ALLOCATOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = select_allocator;

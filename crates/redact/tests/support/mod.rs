//! Secrets for the tests, drawn rather than written, so that no scanner of a hosting site stumbles over them.

/// `length` characters of `alphabet`, the same for the same `seed`.
pub fn draw(alphabet: &str, length: usize, seed: u64) -> String {
    let all: Vec<char> = alphabet.chars().collect();
    let mut state = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            all[(state >> 33) as usize % all.len()]
        })
        .collect()
}

/// Letters of both cases and digits.
pub const MIXED: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// Hexadecimal digits.
pub const HEX: &str = "0123456789abcdef";

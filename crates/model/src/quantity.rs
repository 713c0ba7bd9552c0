//! Numbers with their units, as users read them.

use std::time::Duration;

/// Formats a count with its unit: `1 file`, `2,000 files`.
pub fn count(number: u64, unit: &str) -> String {
    format!("{} {unit}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Formats a number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number of bytes: `812 B`, `1.2 KB`, `3.4 MB`.
pub fn bytes(number: u64) -> String {
    if number < 1000 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1000.0;
    for unit in ["KB", "MB", "GB"] {
        // A larger value would be rounded to 1000.0.
        if value < 999.95 {
            return format!("{value:.1} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// Reads a number of bytes as users write it: digits with an optional unit, `500MB` or `2 GiB`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "write a number and a unit, such as 500MB".to_string())?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "kib" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" => 1 << 20,
        "g" | "gb" => 1_000_000_000,
        "gib" => 1 << 30,
        "t" | "tb" => 1_000_000_000_000,
        "tib" => 1 << 40,
        _ => return Err(format!("{unit} is not a unit of size; use KB, MB, GB or TB")),
    };
    number.checked_mul(factor).ok_or_else(|| "the size is too large".to_string())
}

/// Formats a duration in suitable units: `40 ms`, `1.4 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        1..=9 => format!("{:.1} s", duration.as_secs_f64()),
        seconds @ 10..=59 => format!("{seconds} s"),
        seconds @ 60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quantity_has_its_unit() {
        assert_eq!(
            [count(1, "file"), count(0, "file"), count(12_345, "file")],
            ["1 file", "0 files", "12,345 files"]
        );
        assert_eq!(
            [0, 999, 1000, 999_949, 999_950, 5_000_000_000_000].map(bytes),
            ["0 B", "999 B", "1.0 KB", "999.9 KB", "1.0 MB", "5.0 TB"]
        );
        assert_eq!(
            [40, 1400, 12_345, 200_000, 7_500_000].map(|ms| duration(Duration::from_millis(ms))),
            ["40 ms", "1.4 s", "12 s", "3 min 20 s", "2 h 5 min"]
        );
    }
}

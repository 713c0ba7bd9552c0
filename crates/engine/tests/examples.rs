//! The programs in `examples/` run and do what they say.

#[path = "../../../examples/checkpoint.rs"]
mod checkpoint;

#[test]
fn the_checkpoint_example_runs() {
    checkpoint::main().unwrap();
}

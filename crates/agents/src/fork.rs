//! A conversation that goes on from an earlier point, in the real agent.

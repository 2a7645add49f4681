"""The paper's experiment on a real control plane, in real time, beside its simulation."""

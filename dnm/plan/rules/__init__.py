"""The rules: one file for each option of the planner. `TABLE` of `plan/rule.py` lists them and
imports those that are on; cli, verbs and simulate import what they need of them. They import plan,
model, calendar, demand, kubelet, sizing, and the interface of queues. Pure."""

"""
What a person types at their own machine: attach to a terminal, end it, hold it, see what it costs.

Problem: whoever has to stop an agent at night has a shell and a kubeconfig, and no time to learn conditions. Promise:
what needs no socket goes to the API server alone, with the person's own rights; what needs one goes through the
gateway, and leaves the person's terminal as it was, however it ends. This room knows the gateway by its protocol alone
and never reaches a Sprite itself. Source: gateway.md 5 and 6; docs/access.md.
"""

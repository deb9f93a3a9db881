"""What tools show of a text: its plan as text, findings, and what may follow."""

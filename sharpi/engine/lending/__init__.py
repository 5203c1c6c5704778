"""Lending: a rank computes experts for another rank that does not have them in memory."""

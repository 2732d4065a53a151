//! HorizontalPodAutoscalers.
